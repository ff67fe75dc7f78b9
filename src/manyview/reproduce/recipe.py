"""What a recipe is: a declaration of the runs that a table or figure needs, what the paper says of it, and how it is
judged and drawn."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from matplotlib.figure import Figure

from manyview.reproduce.job import Job, Row, Store
from manyview.reproduce.setting import Setting
from manyview.reproduce.setups import SetUp
from manyview.reproduce.verdict import Compared, Comparison, Table, Values, compare, compared_table, count

K = TypeVar("K")
NOT_PRINTED = "The paper prints no values of this figure."
Name = Callable[[Mapping[str, str]], str]
"""What a row, or a job by its keys, is called: mostly a format, as "λ = {lam}".format_map."""
METHOD: Name = "{method}".format_map


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
    """Its file of results tells rows apart by `variables`. A set-up has one `label`, in tables and comparisons."""

    name: str
    where: str  # the paper's table or figure
    title: str
    claim: str  # what the paper says, as a sentence
    expectation: str  # what we expect of it at laptop scale, written before it was run
    paper_setup: str  # what `--scale paper` runs, in a few words
    remarks: str = ""  # how it was set up here and what to bear in mind
    classes: int | None = None  # of the set that it is about, where it cannot be another
    runs: Callable[[Setting], Sequence[SetUp]]
    variables: tuple[str, ...] = ("method",)
    measured: tuple[str, ...] = ()
    label: Name = METHOD
    comparisons: Sequence[Comparison] = ()
    """What the paper claims of the set-ups at either scale."""
    caption: str = "Paired differences over seeds, in {unit}"  # of what is found of these
    unit: str = "points of linear accuracy"
    takes_images: ClassVar[bool] = True  # false where steps are measured on random images: then `--data` plays no part

    def __post_init__(self) -> None:
        for name in ("claim", "expectation", "remarks"):  # which are wrapped where they are declared
            object.__setattr__(self, name, re.sub(r"\n *", " ", getattr(self, name)))

    def set_up(self, setting: Setting) -> str:
        """The remarks, which are about a laptop's runs; at the paper's scale behind what that runs."""
        if setting.scale == "laptop":
            return self.remarks
        return f"As published: {self.paper_setup}. On a laptop: {self.remarks}"

    def columns(self, table: str = "") -> tuple[str, ...]:
        """Of the file of results."""
        return (*self.variables, "seed", "steps", *self.measured, "seconds")

    def check(self, setting: Setting, store: Store) -> None:  # noqa: B027  (most have nothing to refuse)
        """Raises a `UserError` where these results cannot be added to in this setting."""

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        """All of them; those that cannot be started yet say what they wait for."""
        return [each.job(seed) for seed in setting.seeds for each in self.runs(setting)]

    def setups(self, found: Found) -> dict[str, list[Row]]:
        return grouped(found[""], self.label)

    @abstractmethod
    def values(self, found: Found) -> Values:
        """What is compared, by set-up and seed."""

    @abstractmethod
    def tables(self, found: Found) -> list[Table]:
        """What was found, beside the paper's numbers where there are any."""

    @abstractmethod
    def draw(self, found: Found) -> Figure: ...

    def labelled(self, setting: Setting) -> dict[str, SetUp]:
        """The set-ups of this scale."""
        return {self.label(each.job(0).keys): each for each in self.runs(setting)}

    def asked(self, found: Found) -> Sequence[Comparison]:
        """What the paper claims of the set-ups that are run at this scale; none where the eye has to judge."""
        here = self.labelled(found.setting)
        other = self.labelled(replace(found.setting, scale=found.setting.pick("paper", "laptop"))).keys() - here.keys()
        return [each for each in self.comparisons if not {each.first, each.second} & other]

    def compared(self, found: Found) -> list[Compared]:
        return compare(self.asked(found), self.values(found))

    def notes(self, found: Found) -> str:
        """What a count does not say."""
        return ""

    def verdict(self, found: Found) -> str:
        return " ".join(filter(None, (count(self.compared(found)), self.notes(found))))

    def shown(self, found: Found) -> list[Table]:
        """The tables that have something in them, the comparisons last."""
        tables = [*self.tables(found), compared_table(self.caption.format(unit=self.unit), self.compared(found))]
        return [table for table in tables if table.rows]

    def shown_seeds(self, found: Found) -> str:
        """What the figure shows of them."""
        if len(found.setting.seeds) == 1:
            return f"seed {found.setting.seeds[0]}"
        counts = {len({row["seed"] for row in rows}) for rows in self.setups(found).values()} or {0}
        number = " to ".join(map(str, sorted({min(counts), max(counts)})))
        return f"{number} seed{'s' * (max(counts) > 1)}, minimum to maximum"

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        """Two finished jobs whose encoders the page compares; None where the paper does not compare any."""
        return widest(done, self.asked(found), self.values(found), self.label)

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


def of_one_seed(done: Sequence[Job], pair: Sequence[str], name: Name = METHOD) -> tuple[Job, Job] | None:
    """The first two jobs with these names that have their seed in common; trials are none of them."""
    jobs: dict[tuple[str, str], Job] = {}
    for job in done:
        if not job.table:
            jobs.setdefault((name(job.keys), job.keys["seed"]), job)
    for (named, seed), job in jobs.items():
        if named == pair[0] and (pair[1], seed) in jobs:
            return job, jobs[pair[1], seed]
    return None


def widest(
    done: Sequence[Job], comparisons: Sequence[Comparison], values: Values, name: Name
) -> tuple[Job, Job] | None:
    """Of the set-ups that are compared the two that differ most here, as far as both are jobs."""
    apart: list[tuple[float, tuple[Job, Job]]] = []
    for each in comparisons:
        difference, jobs = each.found(values), of_one_seed(done, (each.first, each.second), name)
        if difference is not None and jobs is not None:
            apart.append((abs(difference.mean), jobs))
    return max(apart, key=lambda pair: pair[0])[1] if apart else None
