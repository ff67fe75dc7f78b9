"""The evaluations of a run, evaluations.json: the one place that reads and writes it, records of 0.1.0 included."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from manyview.atomic import locked, replacing
from manyview.errors import UserError
from manyview.evaluate import described, find
from manyview.evaluate.result import Metric, Result
from manyview.run.files import EVALUATIONS

TOPS = {"top-1": "top1", "top-5": "top5"}  # metrics and their names in 0.1.0
COUNTS = ("train_samples", "test_samples", "classes")


@dataclass(frozen=True)
class Record:
    """One protocol on one encoder, and what came of it."""

    protocol: str
    settings: Mapping[str, Any]
    """All fields of the protocol, as JSON holds them."""
    encoder: str
    """`trained`, `random`, `pixels`, `start`, or the name of other weights."""
    data: str
    test_data: str
    result: Result
    layer: str | None = None
    """None: the features."""
    views: str | None = None
    """None: all."""
    seconds: float = 0.0

    @property
    def compared(self) -> tuple[str, ...]:
        """What records must agree in to be set side by side: all but the encoder. Data of one name may have been of
        other sizes (scenes:600, scenes:10000), so the numbers of samples count."""
        settings = json.dumps(self.settings, sort_keys=True)
        counts = (str(self.result.facts.get(key)) for key in COUNTS)
        return self.protocol, settings, self.data, self.test_data, self.layer or "", self.views or "", *counts

    @property
    def identity(self) -> tuple[str, ...]:
        """A newer record of the same identity replaces the older one."""
        return (*self.compared, self.encoder)

    @property
    def special(self) -> dict[str, Any]:
        """The settings that are not the protocol's defaults; all of them where the protocol is not known here."""
        defaults = find(self.protocol)().settings if self.protocol in described() else {}
        return {name: value for name, value in self.settings.items() if name not in defaults or defaults[name] != value}

    @property
    def label(self) -> str:
        """The protocol with its special settings, such as knn k=20."""
        return " ".join([self.protocol, *(f"{name}={_brief(value)}" for name, value in self.special.items())])


def add_record(run: str | Path, record: Record) -> None:
    """Adds a record to the run's evaluations.json in place of one with the same identity. Several processes may."""
    path = Path(run) / EVALUATIONS
    with locked(path):
        entries = _entries(path)
        if not all(isinstance(entry, dict) for entry in entries):
            raise UserError(f"{path} does not hold a list of evaluations: move it away and evaluate again")
        parsed = ((entry, _parse(entry)) for entry in entries)
        others = [entry for entry, old in parsed if old is None or old.identity != record.identity]
        with replacing(path) as file:
            text = json.dumps([*others, _entry(record)], indent=2, ensure_ascii=False)
            file.write(text.encode(errors="backslashreplace") + b"\n")  # as JSON writes what is no text


def read_records(run: str | Path) -> list[Record]:
    """The evaluations of a run, newest last; none when it was never evaluated. An unusable entry is left out."""
    return [record for entry in _entries(Path(run) / EVALUATIONS) if (record := _parse(entry)) is not None]


def comparisons(records: Iterable[Record]) -> list[dict[str, Record]]:
    """Records side by side that differ in the encoder alone, by encoder; the newest of each."""
    found: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in records:
        found.setdefault(record.compared, {})[record.encoder] = record
    return list(found.values())


def _entries(path: Path) -> list[Any]:
    if not path.exists():
        return []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): move it away and evaluate again") from error
    if not isinstance(entries, list):
        raise UserError(f"{path} does not hold a list of evaluations: move it away and evaluate again")
    return entries


def _entry(record: Record) -> dict[str, Any]:
    entry = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "result"}
    return entry | asdict(record.result)


def _parse(entry: Any) -> Record | None:
    """Trusts nothing: the file may have been edited. None where there is no metric to show."""
    if not isinstance(entry, dict):
        return None
    if "metrics" not in entry:
        entry = _converted(entry)
    listed = mapping(entry.get("metrics")).items()
    metrics = {str(name): metric for name, value in listed if (metric := _metric(value)) is not None}
    headline = entry.get("headline")
    if headline not in metrics:
        return None
    told = mapping(entry.get("facts")).items()
    facts = {str(name): known for name, value in told if (known := number(value)) is not None}
    result = Result(
        metrics, str(headline), facts, str(entry.get("preprocess") or ""), int(number(entry.get("unreadable")) or 0)
    )
    protocol, encoder, data, test_data = (
        str(entry.get(name, "?")) for name in ("protocol", "encoder", "data", "test_data")
    )
    layer, views = (None if entry.get(name) is None else str(entry[name]) for name in ("layer", "views"))
    settings, seconds = mapping(entry.get("settings")), number(entry.get("seconds")) or 0.0
    return Record(protocol, settings, encoder, data, test_data, result, layer, views, seconds)


def _converted(old: Mapping[str, Any]) -> dict[str, Any]:
    """A record of 0.1.0, which knew top-1 and top-5 only. Its settings were those used in the end; of `linear`,
    a choice made for each encoder."""
    used = mapping(old.get("settings"))
    tops = {name: {"value": old.get(key), "interval": old.get(f"{key}_interval")} for name, key in TOPS.items()}
    return {
        **old,
        "metrics": tops,
        "headline": "top-1",
        "facts": {**{name: old.get(name) for name in COUNTS}, "fitted": old.get("train_top1"), **used},
        "settings": {} if old.get("protocol") == "linear" else used,
    }


def _metric(value: Any) -> Metric | None:
    fields = mapping(value)
    if (found := number(fields.get("value"))) is None:
        return None
    interval = fields.get("interval")
    ends = [number(end) for end in interval] if isinstance(interval, list) else []
    low, high = ends if len(ends) == 2 else (None, None)
    return Metric(
        found, None if low is None or high is None else (low, high), "" if fields.get("unit", "%") == "" else "%"
    )


def number(value: object) -> float | None:
    """`value` if it is a finite number: JSON may also hold NaN, text or true where a number belongs."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _brief(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_brief, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
