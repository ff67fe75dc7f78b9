"""Whether a run that began from given weights is still at least as good as these."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyview.config import AnyConfig
from manyview.diagnose.facts import LOOKS
from manyview.diagnose.verdict import clear_change
from manyview.diagnose.words import look
from manyview.run.build import Training
from manyview.run.files import read_config

FALLEN_RANK = 0.5  # of the rank at the start: the rest of the directions is gone


def told(name: str, values: Mapping[str, float]) -> str:
    return f"{LOOKS[name]} {look(name, values[name])}"


def start_of(run: Path) -> dict[str, float]:
    """What was measured of the weights that the run began from; nothing where they were random."""
    said: Any = read_config(run).get("start")
    found = said if isinstance(said, dict) else {}
    return {name: float(found[name]) for name in LOOKS if isinstance(found.get(name), int | float)}


def deciding(start: Mapping[str, float]) -> list[str]:
    """The looks that tell whether it is still as good: where there is an accuracy, that alone."""
    return ["knn"] if "knn" in start else [name for name in LOOKS if name in start]


def fallen(start: Mapping[str, float], now: Mapping[str, float], samples: Mapping[str, int]) -> list[str]:
    """The looks that are clearly worse than at the start, in words. `samples`: how many are behind a share."""
    return [
        f"{told(name, now)}, at the start {look(name, start[name])}"
        for name in deciding(start)
        if name in now and now[name] < floor(name, start[name], samples.get(name, 0))
    ]


def floor(name: str, value: float, samples: int) -> float:
    """The value below which a look has clearly fallen."""
    if name == "feature_rank":
        return FALLEN_RANK * value
    return value - clear_change(value, max(1, samples))


class Watch:
    """Warns when an encoder falls below what it started from; again only after it has recovered."""

    def __init__(self, start: Mapping[str, float], samples: Mapping[str, int], way_out: str) -> None:
        self.start, self.samples, self.way_out = start, samples, way_out
        self.below = False

    def __call__(self, looks: Mapping[str, float]) -> str:
        """The warning, where one is due after these looks."""
        if looks.keys().isdisjoint(deciding(self.start)):
            return ""
        worse = fallen(self.start, looks, self.samples)
        before, self.below = self.below, bool(worse)
        return f"worse than at the start: {'; '.join(worse)}: {self.way_out}" if worse and not before else ""


def watch(run: Path, config: AnyConfig, training: Training) -> Watch:
    optim, start = config.optim, start_of(run)
    if not config.run.knn_every:  # then what is looked at meanwhile has to tell
        start.pop("knn", None)
    samples = {
        "knn": 0 if training.knn is None else len(training.knn[1]),
        "recognised": 0 if training.contrast is None else len(training.contrast),
    }
    way_out = (
        f"start again with a lower --backbone-lr (now {optim.backbone_lr or optim.lr:g}), a higher "
        f"--warmup-head-epochs (now {optim.warmup_head_epochs:g}) or fewer epochs; --snapshots keeps earlier encoders"
    )
    return Watch(start, samples, way_out)
