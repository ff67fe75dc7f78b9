"""Recipes that compare accuracies of several set-ups: most of the papers' tables and half of their figures."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from matplotlib.figure import Figure

from manyview.reproduce.job import Job, Row
from manyview.reproduce.plots import Curve, bars, curves, figure, show_points
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.rivals import widest
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store
from manyview.reproduce.verdict import Comparison, differences, judge, spread

__all__ = ["Grid", "by_seed"]

MEASURED = ("knn", "linear", "seconds")


class Grid(Recipe):
    """`runs` gives the jobs of one seed; a row is told from others by `variables`."""

    variables: ClassVar[tuple[str, ...]]
    x: ClassVar[tuple[str, str] | None] = None
    """Column and label of the horizontal axis; None draws a dot for each set-up."""
    evenly: ClassVar[bool] = False
    paper: ClassVar[Mapping[str, float]] = {}
    """Linear accuracy in the paper, by set-up."""
    paper_words: ClassVar[str] = "the paper's linear"
    comparisons: ClassVar[tuple[Comparison, ...]] = ()

    def columns(self, table: str = "") -> tuple[str, ...]:
        return (*self.variables, "seed", "steps", *MEASURED)

    @abstractmethod
    def runs(self, setting: Setting, seed: int) -> list[Job]: ...

    @abstractmethod
    def label(self, row: Mapping[str, str]) -> str:
        """The set-up's name: in `paper`, in `comparisons` and in tables."""

    def series(self, row: Mapping[str, str]) -> str:
        """The line that it belongs to, where there is an `x`."""
        return "ours"

    def axis(self, setting: Setting) -> tuple[str, str] | None:
        """The `x` of this scale."""
        return self.x

    def asked(self, setting: Setting) -> tuple[Comparison, ...]:
        """What the paper claims of the set-ups that are run at this scale."""
        return self.comparisons

    def published(self, setting: Setting) -> Mapping[str, float]:
        """The paper's figures that may stand beside those of this scale."""
        return self.paper

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        return [job for seed in setting.seeds for job in self.runs(setting, seed)]

    def tables(self, found: Found) -> list[Table]:
        setups, paper = self.setups(found), self.published(found.setting)
        rows = []
        for label in dict.fromkeys([*setups, *paper]):
            mine = setups.get(label, [])
            shown = [spread([float(row[name]) for row in mine]) for name in ("linear", "knn")]
            seeds = ", ".join(sorted({row["seed"] for row in mine}, key=int)) or "none"
            theirs = [f"{paper[label]:g}" if label in paper else "–"] if paper else []
            rows.append((label, *shown, seeds, *theirs))
        header = ("", "linear, %", "kNN, %", "seeds", *([self.paper_words] if paper else []))
        accuracies = Table("Test accuracy: mean ± standard deviation over seeds", header, tuple(rows))
        return [accuracies, differences(self.asked(found.setting), self.values(found))]

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        paper = self.published(found.setting)
        axis = self.axis(found.setting)
        if axis is None:
            values = {label: [float(row["linear"]) for row in rows] for label, rows in self.setups(found).items()}
            theirs = {"linear": paper} if paper else None
            bars(axes, {"linear": values}, y="linear accuracy, %", paper=theirs)
            show_points(axes)
            return made
        column, words = axis
        lines: dict[str, dict[float, list[float]]] = {}
        points: dict[str, dict[float, float]] = {}
        for row in found[""]:
            lines.setdefault(self.series(row), {}).setdefault(float(row[column]), []).append(float(row["linear"]))
            if self.label(row) in paper:
                points.setdefault(self.series(row), {})[float(row[column])] = paper[self.label(row)]
        curves(axes, [Curve(name, line) for name, line in lines.items()], x=words, y="linear accuracy, %",
               paper=points, evenly=self.evenly)  # fmt: skip
        show_points(axes)
        return made

    def shown_seeds(self, found: Found) -> str:
        return self.counted_seeds(found, [len(rows) for rows in self.setups(found).values()])

    def verdict(self, found: Found) -> str:
        return judge(self.asked(found.setting), self.values(found))

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return widest(done, self.asked(found.setting), self.values(found), self.label)

    def values(self, found: Found) -> dict[str, dict[int, float]]:
        """Linear accuracy by set-up and seed."""
        return {label: by_seed(rows, "linear") for label, rows in self.setups(found).items()}

    def setups(self, found: Found) -> dict[str, list[Row]]:
        grouped: dict[str, list[Row]] = {}
        for row in found[""]:
            grouped.setdefault(self.label(row), []).append(row)
        return grouped


def by_seed(rows: list[Row], column: str) -> dict[int, float]:
    return {int(row["seed"]): float(row[column]) for row in rows}
