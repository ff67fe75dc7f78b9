"""Results as small CSV files, one row for each finished piece of work: they can be read, committed and added to.

Beside them `settings.json` holds the resolved settings that rows came from, by their digest, which is in the rows.
"""

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyview.atomic import replacing
from manyview.errors import UserError
from manyview.reproduce.job import Job, Row, digest
from manyview.reproduce.resolved import differing
from manyview.reproduce.setting import ON_SCENES

__all__ = ["IMAGES", "RUN", "SETTINGS", "Store", "known", "to_csv"]

IMAGES, RUN = "images", "run"  # columns that recipes do not see: of which images a row is, and of which settings
SETTINGS = "settings.json"


@dataclass(frozen=True)
class Store:
    """The files of one recipe: DIRECTORY/NAME.csv, and NAME-TABLE.csv where there are several."""

    directory: Path
    name: str
    suffix: str = ""
    images: str | None = None
    """Those that its rows are of, as 50000/10/32: samples, classes and side. None where steps are measured without
    any; then there is no such column."""

    def path(self, table: str = "") -> Path:
        return self.directory / f"{self.name}{'-' if table else ''}{table}{self.suffix}.csv"

    def rows(self, table: str = "") -> list[Row]:
        """Those of its images, as the recipe knows them."""
        return [known(row) for row in self._of_images(self.path(table))]

    def sets(self, table: str = "") -> list[str]:
        """The sets of images that the file has rows of."""
        return list(dict.fromkeys(row[IMAGES] for row in self._all(self.path(table))))

    def rows_of(self, job: Job) -> list[Row]:
        """None where the settings are no longer those that the rows came from."""
        mine = self._with_keys(job)
        same = self._same(job) if mine else set()
        return [known(row) for row in mine if row[RUN] in same]

    def outdated(self, jobs: Sequence[Job]) -> list[str]:
        """For each row that has the keys of one of the jobs and came from other settings: what differs."""
        stored, found = self._settings(), []
        for job in jobs:
            for row in self._with_keys(job) if not job.waits_for else ():
                if row[RUN] not in stored:
                    found.append("settings unknown")
                elif others := differing(stored[row[RUN]], job.settings(self.images)):
                    found.append("; ".join(others))
        return found

    def add(self, job: Job, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Unless another process has done so; several may share the work."""
        with _locked(self.directory):
            if self.rows_of(job):
                return
            settings = {name: value for name, (value, _) in job.settings(self.images).items()}
            path, mine = self.path(job.table), {RUN: digest(settings)}
            mine |= {} if self.images is None else {IMAGES: self.images}
            everything = [*self._all(path), *({**row, **mine} for row in rows)]
            stored = self._settings()
            if mine[RUN] not in stored:  # first, as a row without its settings would not count
                write_settings(self.directory / SETTINGS, stored | {mine[RUN]: settings})
            with replacing(path) as file:
                file.write(to_csv((*columns, *mine), everything).encode())

    def adopt(self, job: Job, columns: Sequence[str]) -> bool:
        """Whether another recipe did the same work and looked at it in the same way: then its rows are these too."""
        if self.images is None or not self._settings():
            return False  # steps are measured on other machines, and at other times
        same, measured = self._same(job), {name for name in columns if name not in job.keys}
        for path in sorted(self.directory.glob("*.csv")):
            if path.stem.endswith(ON_SCENES) != self.suffix.endswith(ON_SCENES):
                continue  # as many images of as many classes are not the same ones
            rows: list[Row] = []
            with suppress(UserError, OSError, ValueError, csv.Error):  # a file of somebody else, maybe damaged
                rows = [row for row in self._of_images(path) if row[RUN] in same]
                rows = [row for row in rows if row.get("seed") == job.keys.get("seed")]
            if rows and rows[0].keys() >= measured:
                keys = {name: value for name, value in rows[0].items() if name not in measured}
                alike = [row for row in rows if row.items() >= keys.items()]  # of one job, where several are alike
                self.add(job, columns, [{**job.keys, **{name: row[name] for name in measured}} for row in alike])
                return True
        return False

    def check(self, table: str, columns: Sequence[str]) -> None:
        """Raises a `UserError` where a file has other columns than its recipe has now."""
        rows = self._all(self.path(table))
        mine = [*columns, RUN, *([] if self.images is None else [IMAGES])]
        if rows and list(rows[0]) != mine:
            raise UserError(
                f"{self.path(table)} has the columns {', '.join(rows[0])}, and the recipe now has {', '.join(mine)}: "
                "move it away"
            )

    def _same(self, job: Job) -> set[str]:
        """Digests of the settings that are those of the job."""
        today = job.settings(self.images)
        return {name for name, stored in self._settings().items() if not differing(stored, today)}

    def _settings(self) -> dict[str, dict[str, Any]]:
        path = self.directory / SETTINGS
        try:
            found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}): restore it, rows do not count without it") from error
        return found

    def _with_keys(self, job: Job) -> list[Row]:
        return [row for row in self._of_images(self.path(job.table)) if row.items() >= job.keys.items()]

    def _of_images(self, path: Path) -> list[Row]:
        rows = self._all(path)
        return rows if self.images is None else [row for row in rows if row[IMAGES] == self.images]

    def _all(self, path: Path) -> list[Row]:
        if not path.exists():
            return []
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        for column in (RUN,) if self.images is None else (RUN, IMAGES):
            if column not in (reader.fieldnames or ()):
                raise UserError(
                    f"{path} has no column {column!r}, without which its rows cannot be told from others: move it away"
                )
        for number, row in enumerate(rows, 2):
            if None in row or None in row.values():
                raise UserError(f"{path} is damaged in line {number}: mend or remove the line")
        return rows


def known(row: Row) -> Row:
    """What a recipe sees of it."""
    return {name: value for name, value in row.items() if name not in (IMAGES, RUN)}


def to_csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_settings(path: Path, settings: dict[str, dict[str, Any]]) -> None:
    """A line for each, so that a row more is a line more."""
    lines = ",\n".join(f'"{name}": {json.dumps(settings[name], ensure_ascii=False)}' for name in sorted(settings))
    with replacing(path) as file:
        file.write(f"{{\n{lines}\n}}\n".encode())


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
