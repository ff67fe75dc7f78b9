"""What the files of a run say. Some may be missing or half-written: a run can be read while it is training."""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from manyview import bounds
from manyview.diagnose.contrast import CONTRAST
from manyview.errors import UserError
from manyview.evaluate import PROTOCOLS
from manyview.methods import described, find
from manyview.methods.base import Chance
from manyview.run.files import ENCODER, EVALUATIONS, METRICS, UNREADABLE, read_config

__all__ = ["Comparison", "Facts", "Series", "number", "read_facts"]

Series = tuple[list[float], list[float]]
"""Steps, and the values measured there."""


@dataclass(frozen=True)
class Comparison:
    """The newest results of one protocol on one test set, by encoder ("trained", "random")."""

    protocol: str
    data: str
    test_data: str
    layer: str | None  # of the backbone, or some of its views; None: its features
    results: Mapping[str, Mapping[str, Any]]

    @property
    def of_views(self) -> bool:
        """Whether it is about some views of the encoder, and not a layer of them."""
        return any(result.get("views") and not result.get("layer") for result in self.results.values())

    @property
    def title(self) -> str:
        """The protocol in words; the file may name one that is not known here."""
        kind = PROTOCOLS.get(self.protocol)
        return self.protocol if kind is None else kind.title

    def top1(self, encoder: str) -> float | None:
        return number(self.results.get(encoder, {}).get("top1"))


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
        common = {"step", "epoch", "loss", "lr", "images_per_s", "wait", "knn", *CONTRAST}
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
        """What guessing would cost; None where the method has no such level or the settings are not a method's."""
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
        config={name: group for name, group in _mapping(config.get("config")).items() if isinstance(group, dict)},
        data=_mapping(config.get("data")),
        contrast=_mapping(config.get("contrast")),
        environment=_mapping(config.get("environment")),
        metrics=_metrics(run / METRICS),
        comparisons=_comparisons(run / EVALUATIONS),
        unreadable=_unreadable(run / UNREADABLE),
        finished=(run / ENCODER).is_file(),
    )


def number(value: object) -> float | None:
    """`value` if it is a finite number: JSON may also hold NaN, text or true where a number belongs."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _metrics(path: Path) -> tuple[dict[str, Any], ...]:
    """Every step once; a line that is still being written (or was cut by a crash) is left out."""
    rows: dict[float, dict[str, Any]] = {}
    for line in _lines(path):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and (step := number(row.get("step"))) is not None:
            rows[step] = row
    return tuple(rows[step] for step in sorted(rows))


def _comparisons(path: Path) -> tuple[Comparison, ...]:
    entries = _json(path) if path.is_file() else []
    groups: dict[tuple[str, str, str, str | None], dict[str, dict[str, Any]]] = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and number(entry.get("top1")) is not None:
            protocol, data, test_data = (str(entry.get(name, "?")) for name in ("protocol", "data", "test_data"))
            words = {"views": "view {}", "layer": "{}"}
            parts = [text.format(entry[name]) for name, text in words.items() if entry.get(name) is not None]
            layer = ", ".join(parts) or None
            results = groups.setdefault((protocol, data, test_data, layer), {})
            results[str(entry.get("encoder", "?"))] = entry  # the newest is last
    return tuple(Comparison(*key, results) for key, results in groups.items())


def _unreadable(path: Path) -> tuple[tuple[str, str], ...]:
    parts = (line.partition("\t") for line in _lines(path) if line)
    return tuple((name, reason) for name, _, reason in parts)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): restore or remove it") from error


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
