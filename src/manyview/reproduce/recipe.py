"""What a recipe is: a declaration of the runs that a table or figure needs, what the paper says of it, and how it is
judged and drawn."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from matplotlib.figure import Figure

from manyview.reproduce.job import Job, Row, Store
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Compared, Table, compared_table, count

__all__ = ["NOT_PRINTED", "Found", "Name", "Recipe", "Runs", "by_seed", "grouped", "of_one_seed", "seeds_of"]

K = TypeVar("K")
NOT_PRINTED = "The paper prints no values of this figure."
Runs = Callable[[Setting, int], Sequence[Job]]  # the jobs of one seed
Name = Callable[[Mapping[str, str]], str]
"""What a row, or a job by its keys, is called: mostly a format, as "λ = {lam}".format_map."""


@dataclass(frozen=True)
class Found:
    """The rows of finished jobs, by the recipe's table, and where these jobs worked, in the same order, where the
    directories are still there."""

    rows: Mapping[str, list[Row]]
    setting: Setting
    places: tuple[Path, ...] = ()

    def __getitem__(self, table: str) -> list[Row]:
        return self.rows.get(table, [])


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    name: str
    where: str  # the paper's table or figure
    title: str
    claim: str  # what the paper says, as a sentence
    expectation: str  # what we expect of it at laptop scale, written before it was run
    paper_setup: str  # what `--scale paper` runs, in a few words
    remarks: str = ""  # how it was set up here and what to bear in mind
    classes: int | None = None  # of the set that it is about, where it cannot be another
    runs: Runs
    takes_images: ClassVar[bool] = True  # false where steps are measured on random images: then `--data` plays no part

    def set_up(self, setting: Setting) -> str:
        """The remarks, which are about a laptop's runs; at the paper's scale behind what that runs."""
        if setting.scale == "laptop":
            return self.remarks
        return f"As published: {self.paper_setup}. On a laptop: {self.remarks}"

    @abstractmethod
    def columns(self, table: str = "") -> tuple[str, ...]:
        """Of the file of results."""

    def check(self, setting: Setting, store: Store) -> None:  # noqa: B027  (most have nothing to refuse)
        """Raises a `UserError` where these results cannot be added to in this setting."""

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        """All of them; those that cannot be started yet say what they wait for."""
        return [job for seed in setting.seeds for job in self.runs(setting, seed)]

    @abstractmethod
    def tables(self, found: Found) -> list[Table]:
        """What was found, beside the paper's numbers where there are any."""

    @abstractmethod
    def compared(self, found: Found) -> list[Compared]:
        """The paper's claims beside what was found; none where the eye has to judge."""

    def caption(self) -> str:
        """Of the table of comparisons."""
        return "Paired differences over seeds, in points of linear accuracy"

    def notes(self, found: Found) -> str:
        """What a count does not say."""
        return ""

    def verdict(self, found: Found) -> str:
        return " ".join(filter(None, (count(self.compared(found)), self.notes(found))))

    def shown(self, found: Found) -> list[Table]:
        """The tables that have something in them, the comparisons last."""
        tables = [*self.tables(found), compared_table(self.caption(), self.compared(found))]
        return [table for table in tables if table.rows]

    @abstractmethod
    def draw(self, found: Found) -> Figure: ...

    def shown_seeds(self, found: Found) -> str:
        """What the figure shows of them."""
        return self.counted_seeds(found, [len(found.setting.seeds)])

    def counted_seeds(self, found: Found, counts: Collection[int]) -> str:
        """The same where set-ups have so many seeds each."""
        if len(found.setting.seeds) == 1:
            return f"seed {found.setting.seeds[0]}"
        least, most = min(counts, default=0), max(counts, default=0)
        number = f"{most}" if least == most else f"{least} to {most}"
        return f"{number} seed{'s' * (most > 1)}, minimum to maximum"

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        """Two finished jobs whose encoders the page compares; None where the paper does not compare any."""
        return None

    def found(self, jobs: list[Job], store: Store, setting: Setting, places: tuple[Path, ...] = ()) -> Found:
        """What the store holds of these jobs, in their order."""
        rows: dict[str, list[Row]] = {}
        for job in jobs:
            rows.setdefault(job.table, []).extend(store.rows_of(job) if not job.waits_for else [])
        return Found(rows, setting, places)


def grouped(rows: Sequence[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """In the order in which they come."""
    found: dict[K, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def seeds_of(rows: Sequence[Row]) -> str:
    return ", ".join(sorted({row["seed"] for row in rows}, key=int))


def by_seed(rows: Sequence[Row], column: str) -> dict[int, float]:
    return {int(row["seed"]): float(row[column]) for row in rows}


def of_one_seed(done: Sequence[Job], first: str, second: str, name: Name) -> tuple[Job, Job] | None:
    """The first two jobs with these names that have their seed in common; trials are none of them."""
    jobs: dict[tuple[str, str], Job] = {}
    for job in done:
        if not job.table:
            jobs.setdefault((name(job.keys), job.keys["seed"]), job)
    for (named, seed), job in jobs.items():
        if named == first and (second, seed) in jobs:
            return job, jobs[second, seed]
    return None
