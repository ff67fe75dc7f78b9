"""Results as small CSV files, one row for each finished piece of work: they can be read, committed and added to."""

import csv
import fcntl
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from manyview.atomic import replacing
from manyview.errors import UserError
from manyview.reproduce.job import Job, Row

__all__ = ["IMAGES", "Store", "to_csv"]

IMAGES = "images"  # the column


@dataclass(frozen=True)
class Store:
    """The files of one recipe: DIRECTORY/NAME.csv, and NAME-TABLE.csv where there are several."""

    directory: Path
    name: str
    suffix: str = ""
    images: str | None = None
    """Those that its rows are of, as 50000/10: so many to learn from, of so many classes. None where steps are weighed
    without any; then there is no such column."""

    def path(self, table: str = "") -> Path:
        return self.directory / f"{self.name}{'-' if table else ''}{table}{self.suffix}.csv"

    def rows(self, table: str = "") -> list[Row]:
        """Those of its images, as the recipe knows them."""
        rows = self._all(table)
        if self.images is None:
            return rows
        return [
            {name: value for name, value in row.items() if name != IMAGES} for row in rows if row[IMAGES] == self.images
        ]

    def sets(self, table: str = "") -> list[str]:
        """The sets of images that the file has rows of."""
        return list(dict.fromkeys(row[IMAGES] for row in self._all(table)))

    def _all(self, table: str) -> list[Row]:
        path = self.path(table)
        if not path.exists():
            return []
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        if self.images is not None and IMAGES not in (reader.fieldnames or ()):
            raise UserError(
                f"{path} does not say of which images its rows are: add the column {IMAGES}, as 50000/10 in rows "
                "of 50,000 training images of 10 classes"
            )
        for number, row in enumerate(rows, 2):
            if None in row or None in row.values():
                raise UserError(f"{path} is damaged in line {number}: mend or remove the line")
        return rows

    def rows_of(self, job: Job) -> list[Row]:
        return [row for row in self.rows(job.table) if row.items() >= job.keys.items()]

    def add(self, job: Job, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Unless another process has done so; several may share the work."""
        with _locked(self.directory):
            if self.rows_of(job):
                return
            mine = {} if self.images is None else {IMAGES: self.images}
            everything = [*self._all(job.table), *({**row, **mine} for row in rows)]
            with replacing(self.path(job.table)) as file:
                file.write(to_csv((*columns, *mine), everything).encode())


def to_csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
