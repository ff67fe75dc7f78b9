"""Recipes that weigh steps: time or memory of each kind over one number."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from matplotlib.figure import Figure

from manyview.errors import UserError
from manyview.reproduce.job import Job
from manyview.reproduce.plots import Curve, curves, figure
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store
from manyview.reproduce.verdict import spread
from manyview.reproduce.weighing import machine

__all__ = ["CostGrid", "ratios"]


class CostGrid(Recipe):
    """Each seed is one more repetition, in processes of their own."""

    takes_images = False
    measured: ClassVar[tuple[str, str, float]]
    """Column, its name with the unit that it is shown in, and that unit in the column's own."""
    x: ClassVar[str]
    paper: ClassVar[Mapping[tuple[str, str], float]] = {}
    """Of a kind of step and a number of positives, in `paper_words`."""
    paper_words: ClassVar[str] = ""

    def columns(self, table: str = "") -> tuple[str, ...]:
        return ("method", "positives", "batch", "seed", "device", "threads", "milliseconds", "step_bytes", "seconds")

    def check(self, setting: Setting, store: Store) -> None:
        here = machine(setting)
        for row in store.rows():
            if not row.items() >= here.items():
                raise UserError(
                    f"{store.path()} was measured on {row['device']} with {row['threads']} threads, and this would be "
                    f"{here['device']} with {here['threads']}: name another --results, or the same --device and "
                    "--threads"
                )

    @abstractmethod
    def runs(self, setting: Setting, seed: int) -> list[Job]: ...

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        return [job for seed in setting.seeds for job in self.runs(setting, seed)]

    def values(self, found: Found) -> dict[tuple[str, str], dict[int, float]]:
        """In the shown unit, by method and positives, and by repetition."""
        column, _, unit = self.measured
        grouped: dict[tuple[str, str], dict[int, float]] = {}
        for row in found[""]:
            mine = grouped.setdefault((row["method"], row["positives"]), {})
            mine[int(row["seed"])] = float(row[column]) / unit
        return grouped

    def shown_seeds(self, found: Found) -> str:
        repetitions = len(found.setting.seeds)
        return f"{repetitions} repetition{'s, least to most' if repetitions > 1 else ''}"

    def tables(self, found: Found) -> list[Table]:
        found_values, words = self.values(found), self.measured[1]
        batches = {(row["method"], row["positives"]): row["batch"] for row in found[""]}
        rows = []
        for key, values in found_values.items():
            theirs = [f"{self.paper[key]:g}" if key in self.paper else "–"] if self.paper else []
            rows.append((*key, batches[key], spread(list(values.values())), str(len(values)), *theirs))
        header = ("", "positives", "batch", words, "repetitions", *([self.paper_words] if self.paper else []))
        return [Table("A step: mean ± standard deviation over repetitions", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        lines: dict[str, dict[float, list[float]]] = {}
        theirs: dict[str, dict[float, float]] = {}
        for (method, positives), values in self.values(found).items():
            lines.setdefault(method, {})[float(positives)] = list(values.values())
            if (method, positives) in self.paper:
                theirs.setdefault(method, {})[float(positives)] = self.paper[method, positives]
        curves(axes, [Curve(*line) for line in lines.items()], x=self.x, y=self.measured[1], paper=theirs)
        for each in made.axes:  # also that of the paper's points
            each.set_ylim(bottom=0)
        return made


def ratios(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Of two kinds of step, in each repetition that has both."""
    return [first[seed] / second[seed] for seed in sorted(first.keys() & second.keys())]
