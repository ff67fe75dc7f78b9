"""Recipes that measure steps: time or memory of each kind over one number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from matplotlib.figure import Figure

from manyview.errors import UserError
from manyview.reproduce.job import Store, Weighing, machine
from manyview.reproduce.plots import bars, curves, figure
from manyview.reproduce.recipe import Found, Recipe
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Compared, Table, spread

__all__ = ["Costs", "Steps", "ratios", "weighing"]

Steps = Mapping[tuple[str, str], Mapping[int, float]]
"""In the shown unit, by kind of step and number of positives, and by repetition."""


@dataclass(frozen=True, kw_only=True)
class Costs(Recipe):
    """Each seed is one more repetition, in processes of their own."""

    takes_images: ClassVar[bool] = False
    measured: tuple[str, str, float] = ("milliseconds", "time of a step, ms", 1.0)
    """Column, its name with the unit that it is shown in, and that unit in the column's own."""
    x: str = "positives per query, K"
    paper: Mapping[tuple[str, str], float] = field(default_factory=dict)  # by kind of step and number of positives
    judged: Callable[[Steps], list[Compared]]
    noted: Callable[[Steps], str] = lambda _: ""
    bar: str = ""  # how a row is named where each has a marker of its own instead of a place on a line
    judged_by: str  # caption of the comparisons

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

    def values(self, found: Found) -> dict[tuple[str, str], dict[int, float]]:
        column, _, unit = self.measured
        grouped: dict[tuple[str, str], dict[int, float]] = {}
        for row in found[""]:
            mine = grouped.setdefault((row["method"], row["positives"]), {})
            mine[int(row["seed"])] = float(row[column]) / unit
        return grouped

    def shown_seeds(self, found: Found) -> str:
        repetitions = len(found.setting.seeds)
        return f"{repetitions} repetition{'s, minimum to maximum' if repetitions > 1 else ''}"

    def caption(self) -> str:
        return self.judged_by

    def compared(self, found: Found) -> list[Compared]:
        return self.judged(self.values(found))

    def notes(self, found: Found) -> str:
        return self.noted(self.values(found))

    def tables(self, found: Found) -> list[Table]:
        batches, rows = {(row["method"], row["positives"]): row["batch"] for row in found[""]}, []
        for key, values in self.values(found).items():
            theirs = [f"{self.paper[key]:g}" if key in self.paper else "–"] if self.paper else []
            rows.append((*key, batches[key], spread(list(values.values())), str(len(values)), *theirs))
        last = ["the paper's, ms (GPU)"] * bool(self.paper)
        header = ("", "positives", "batch", self.measured[1], "repetitions", *last)
        return [Table("A step: mean ± standard deviation over repetitions", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        lines: dict[str, dict[float, list[float]]] = {}
        theirs: dict[str, dict[float, float]] = {}
        named: dict[str, list[float]] = {}
        known: dict[str, float] = {}
        values = self.values(found)
        for row in found[""]:
            key = row["method"], row["positives"]
            named[self.bar.format_map(row)] = lines.setdefault(key[0], {})[float(key[1])] = list(values[key].values())
            if key in self.paper:
                known[self.bar.format_map(row)] = theirs.setdefault(key[0], {})[float(key[1])] = self.paper[key]
        if self.bar:
            bars(axes, {"ours": named}, y=self.measured[1], paper={"ours": known})
        else:
            curves(axes, lines, x=self.x, y=self.measured[1], paper=theirs)
        for each in made.axes:  # also that of the paper's points
            each.set_ylim(bottom=0)
        return made


def weighing(name: str, kind: str, seed: int, **size: int | str) -> Weighing:
    keys = {"method": name, "positives": str(size["keys"]), "batch": str(size["batch"]), "seed": str(seed)}
    return Weighing(keys, kind=kind, size=size)


def ratios(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Of two kinds of step, in each repetition that has both."""
    return [first[seed] / second[seed] for seed in sorted(first.keys() & second.keys())]
