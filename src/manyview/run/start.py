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


def fallen(start: Mapping[str, float], now: Mapping[str, float], samples: Mapping[str, int]) -> list[str]:
    """The looks that are clearly worse than at the start, in words. `samples`: how many are behind a share. Where there
    is an accuracy, it alone decides."""
    names = [name for name in LOOKS if name in start and name in now]
    return [
        f"{told(name, now)}, at the start {look(name, start[name])}"
        for name in (["knn"] if "knn" in names else names)
        if now[name] < floor(name, start[name], samples.get(name, 0))
    ]


def floor(name: str, value: float, samples: int) -> float:
    """The value below which a look has clearly fallen."""
    if name == "feature_rank":
        return FALLEN_RANK * value
    return value - clear_change(value, max(1, samples))


class Watch:
    """Warns when an encoder falls below what it started from; again only after it has recovered."""

    def __init__(self, run: Path, config: AnyConfig, training: Training) -> None:
        self.start = start_of(run)
        self.samples = {
            "knn": 0 if training.knn is None else len(training.knn[1]),
            "recognised": 0 if training.contrast is None else len(training.contrast),
        }
        optim = config.optim
        self.way_out = (
            f"start again with a lower --backbone-lr (now {optim.backbone_lr or optim.lr:g}), a higher "
            f"--warmup-head-epochs (now {optim.warmup_head_epochs:g}) or fewer epochs; "
            "--snapshots keeps earlier encoders"
        )
        self.below = False

    def __call__(self, looks: Mapping[str, float]) -> str:
        """The warning, where one is due after these looks."""
        if not looks.keys() & self.start.keys():
            return ""
        worse = fallen(self.start, looks, self.samples)
        before, self.below = self.below, bool(worse)
        return f"worse than at the start: {'; '.join(worse)}: {self.way_out}" if worse and not before else ""
