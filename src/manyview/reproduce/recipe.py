"""What a recipe is: the runs that a table or figure needs, how it is drawn, and what the paper says of it."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from matplotlib.figure import Figure

from manyview.reproduce.job import Job, Row
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store

__all__ = ["Found", "Recipe", "Table"]


@dataclass(frozen=True)
class Table:
    """As it is shown, in whatever form."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Found:
    """The rows of finished jobs, by the recipe's table, and where these jobs worked, in the same order, where that is
    at hand."""

    rows: dict[str, list[Row]]
    setting: Setting
    places: tuple[Path, ...] = ()

    def __getitem__(self, table: str) -> list[Row]:
        return self.rows.get(table, [])


class Recipe(ABC):
    """One file in `recipes/` holds one of these, and is found by itself."""

    name: ClassVar[str]
    where: ClassVar[str]
    """The paper's table or figure."""
    title: ClassVar[str]
    claim: ClassVar[str]
    """What the paper says, as a sentence."""
    expectation: ClassVar[str]
    """What we expect of it at laptop scale, written before it was run."""
    remarks: ClassVar[str] = ""
    """How it was set up here and what to bear in mind."""
    paper_setup: ClassVar[str]
    """What `--scale paper` runs, in a few words."""

    takes_images: ClassVar[bool] = True
    """False where steps are weighed on images made up for it: then `--data` plays no part."""

    classes: ClassVar[int | None] = None
    """Of the set that it is about, where it cannot be another."""

    def set_up(self, setting: Setting) -> str:
        """The remarks, which are about a laptop's runs; at the paper's scale behind what that runs."""
        if setting.scale == "laptop":
            return self.remarks
        return f"As published: {self.paper_setup}. Of a laptop's runs: {self.remarks}"

    @abstractmethod
    def columns(self, table: str = "") -> tuple[str, ...]:
        """Of the file of results."""

    def check(self, setting: Setting, store: Store) -> None:  # noqa: B027  (most have nothing to refuse)
        """Raises a `UserError` where these results cannot be added to in this setting."""

    @abstractmethod
    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        """All of them; those that cannot be started yet say what they wait for."""

    @abstractmethod
    def tables(self, found: Found) -> list[Table]:
        """What was found, beside the paper's figures where there are any."""

    def shown(self, found: Found) -> list[Table]:
        """The tables that have something in them."""
        return [table for table in self.tables(found) if table.rows]

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
        return f"{number} seed{'s' * (most > 1)}, least to most"

    @abstractmethod
    def verdict(self, found: Found) -> str:
        """Whether the claim holds here, and how sure that is."""

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        """Two finished jobs whose encoders the page sets side by side; None where the paper does not compare any."""
        return None

    def found(self, jobs: list[Job], store: Store, setting: Setting, places: tuple[Path, ...] = ()) -> Found:
        """What the store holds of these jobs, in their order."""
        rows: dict[str, list[Row]] = {}
        for job in jobs:
            rows.setdefault(job.table, []).extend(store.rows_of(job))
        return Found(rows, setting, places)
