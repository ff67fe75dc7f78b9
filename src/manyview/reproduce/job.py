"""One piece of work of a recipe: it depends on no other, survives interruptions and is never done twice."""

import fcntl
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from manyview.reproduce.setting import Setting

__all__ = ["LOCK", "Job", "Row", "alone", "digest", "place"]

LOCK = "lock"  # the file that a process holds while it works in a place

Row = dict[str, str]
"""A line of a file of results, by column."""


@dataclass(frozen=True)
class Job(ABC):
    """`perform` does the work, or what is left of it, in a directory of its own."""

    keys: Mapping[str, str]
    """The columns that tell its rows from those of other jobs."""
    table: str = field(default="", kw_only=True)
    """Which of the recipe's files of results it belongs to; most recipes have one, without a name."""
    waits_for: str = field(default="", kw_only=True)
    """What must be known before it can be started; empty when it is."""

    def __str__(self) -> str:
        return ", ".join(value if name == "method" else f"{name} {value}" for name, value in self.keys.items())

    @property
    @abstractmethod
    def identity(self) -> str:
        """Everything that decides its outcome besides the images: equal for jobs of two recipes that share the work."""

    @property
    def measures(self) -> tuple[str, ...]:
        """How its outcome is measured, where that can be done in several ways."""
        return ()

    @property
    def digest(self) -> str:
        """Of all that decides its rows besides the images and its keys."""
        return digest([self.identity, *self.measures])

    @property
    @abstractmethod
    def expected_seconds(self) -> float:
        """About how long it takes on two cores."""

    @abstractmethod
    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        """The rows that it adds to the results."""


def place(job: Job, setting: Setting, out: Path) -> Path:
    """The directory of a job: the same for all recipes that need this very work on these images."""
    start = re.sub(r"[^a-z0-9]+", "-", job.identity.lower()).strip("-")[:60].strip("-")
    return out / "jobs" / f"{start}-{digest([job.identity, setting.train, setting.quick])}"


def digest(words: list[object]) -> str:
    return hashlib.blake2b(json.dumps(words).encode(), digest_size=4).hexdigest()


@contextmanager
def alone(directory: Path) -> Iterator[bool]:
    """Whether nobody else works there; a process that dies lets go."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / LOCK, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
