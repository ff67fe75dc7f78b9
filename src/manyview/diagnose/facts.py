"""What the files of a run say. Some may be missing or half-written: a run can be read while it is training."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from manyview import bounds, evaluate
from manyview.diagnose.contrast import CONTRAST
from manyview.diagnose.words import spelled
from manyview.errors import UserError
from manyview.evaluate.records import Record, comparisons, mapping, number, read_records
from manyview.evaluate.result import Metric
from manyview.methods import described, find
from manyview.methods.base import Chance
from manyview.run.files import ENCODER, METRICS, START, UNREADABLE, read_config

# What is looked at before the first step, during the run and after it, in the order of what it says.
LOOKS = {
    "knn": "kNN accuracy",
    "recognised": "views recognised",
    "feature_rank": "effective rank of the features",
}
Series = tuple[list[float], list[float]]
"""Steps, and the values measured there."""


@dataclass(frozen=True)
class Comparison:
    """The newest records that differ in the encoder alone, by encoder ("trained", "random")."""

    results: Mapping[str, Record]

    @property
    def shared(self) -> Record:
        """For what they have in common."""
        return next(iter(self.results.values()))

    @property
    def layer(self) -> str | None:
        """The layer of the backbone, or some of its views; None: its features."""
        parts = [f"view {self.shared.views}" if self.shared.views else "", self.shared.layer or ""]
        return ", ".join(part for part in parts if part) or None

    @property
    def of_views(self) -> bool:
        """Whether it is about some views of the encoder, and not a layer of them."""
        return bool(self.shared.views and not self.shared.layer)

    @property
    def title(self) -> str:
        """The protocol in words, with the settings that are not its defaults; it may be one that is not known here."""
        name = self.shared.protocol
        words = evaluate.find(name).title if name in evaluate.described() else name
        special = ", ".join(f"{key.replace('_', ' ')} {spelled(value)}" for key, value in self.shared.special.items())
        return f"{words} ({special})" if special else words

    @property
    def headline(self) -> str:
        return self.shared.result.headline

    def metric(self, encoder: str) -> Metric | None:
        """The headline metric of this encoder."""
        return self.results[encoder].result.metrics.get(self.headline) if encoder in self.results else None


@dataclass(frozen=True)
class Facts:
    """config.json, metrics.jsonl, evaluations.json and unreadable.txt of one run."""

    path: Path
    method: str
    version: str
    preset: str
    config: Mapping[str, Mapping[str, Any]]
    data: Mapping[str, Any]
    contrast: Mapping[str, Any]  # how it was measured during training; empty where it was not
    environment: Mapping[str, Any]
    metrics: tuple[Mapping[str, Any], ...]  # by step, ascending
    comparisons: tuple[Comparison, ...]
    unreadable: tuple[tuple[str, str], ...]  # name of the sample, reason
    finished: bool
    start: Mapping[str, Any] = field(default_factory=dict)  # the weights that it began from, and looks before any step
    has_start: bool = False  # whether their encoder is kept in the run

    @property
    def labelled(self) -> bool:
        """Whether the data tells classes apart. A folder with a single directory of images does not."""
        classes = self.data.get("classes")
        return isinstance(classes, list) and len(classes) > 1 and not self.setting("data", "unlabelled")

    @property
    def evaluation(self) -> str:
        """The first evaluation to make: one that works for this data."""
        return self.command("evaluate knn" if self.labelled else "evaluate recognise")

    @property
    def began_from(self) -> str | None:
        """The name of the weights that the run began from; None for random ones."""
        name = self.start.get("weights") or self.setting("encoder", "init")
        return None if name is None else str(name)

    def setting(self, group: str, name: str) -> Any:
        """The value of a flag; None when the run does not have it."""
        return self.config.get(group, {}).get(name)

    def command(self, verb: str) -> str:
        """What a user types to do something with the run and its data."""
        data = self.setting("data", "data") or self.data.get("name") or "DATA"
        return f"manyview {verb} {shlex.quote(str(self.path))} --data {shlex.quote(str(data))}"

    def series(self, key: str) -> Series:
        """Steps and values of one metric, wherever it was measured."""
        found = [(row["step"], value) for row in self.metrics if (value := number(row.get(key))) is not None]
        return [step for step, _ in found], [value for _, value in found]

    @property
    def final_loss(self) -> float | None:
        """The mean over the last 5 % of the steps: a single batch says little."""
        losses = self.series("loss")[1]
        return fmean(losses[-max(1, len(losses) // 20) :]) if losses else None

    @property
    def diagnostics(self) -> list[str]:
        """Names of the metrics that only the method knows."""
        common = {"step", "epoch", "loss", "lr", "images_per_s", "wait", *LOOKS, *CONTRAST}
        names = dict.fromkeys(key for row in self.metrics for key, value in row.items() if number(value) is not None)
        return [name for name in names if name not in common]

    @property
    def seconds(self) -> float | None:
        """Time spent in training steps, from the rate of each: interruptions do not count."""
        rates, batch = self.series("images_per_s")[1], number(self.setting("optim", "batch_size"))
        if batch is None or not rates:
            return None
        return sum(batch / rate for rate in rates if rate > 0)

    @property
    def chance(self) -> Chance | None:
        """The loss at chance; None if the method has no such level, or if the settings are not those of a method."""
        batch = number(self.setting("optim", "batch_size"))
        if self.method not in described() or batch is None:
            return None
        try:
            kind = find(self.method)
            known = {field.name for field in fields(kind.Config)}
            given = {name: value for name, value in self.config.get("method", {}).items() if name in known}
            bounds.check(config := kind.Config(**given))
            chance = kind.chance(config, int(batch // (number(self.setting("optim", "accumulate")) or 1)))
            return chance if chance is not None and chance.candidates > 1 else None
        except (ArithmeticError, LookupError, TypeError, ValueError, UserError):  # the file may have been edited
            return None


def read_facts(run: Path) -> Facts:
    config = read_config(run)
    return Facts(
        path=run,
        method=str(config.get("method", "?")),
        version=str(config.get("version", "?")),
        preset=str(config.get("preset", "?")),
        config={name: group for name, group in mapping(config.get("config")).items() if isinstance(group, dict)},
        data=mapping(config.get("data")),
        contrast=mapping(config.get("contrast")),
        environment=mapping(config.get("environment")),
        metrics=_metrics(run / METRICS),
        comparisons=tuple(map(Comparison, comparisons(read_records(run)))),
        unreadable=_unreadable(run / UNREADABLE),
        finished=(run / ENCODER).is_file(),
        start=mapping(config.get("start")),
        has_start=(run / START).is_file(),
    )


def _metrics(path: Path) -> tuple[dict[str, Any], ...]:
    """Every step once; a line that is still being written (or was cut by a crash) is left out."""
    rows: dict[float, dict[str, Any]] = {}
    for line in _lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and (step := number(row.get("step"))) is not None:
            rows[step] = row
    return tuple(rows[step] for step in sorted(rows))


def _unreadable(path: Path) -> tuple[tuple[str, str], ...]:
    parts = (line.partition("\t") for line in _lines(path) if line)
    return tuple((name, reason) for name, _, reason in parts)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
