"""Recipes that measure steps: time or memory of each kind over one number."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression
from typing import Any, ClassVar

from matplotlib.figure import Figure

from manyview.errors import UserError
from manyview.reproduce.job import Store, Weighing, machine
from manyview.reproduce.plots import figure
from manyview.reproduce.recipe import Found, Name
from manyview.reproduce.setting import Setting
from manyview.reproduce.setups import SetUp
from manyview.reproduce.sweep import Sweep
from manyview.reproduce.verdict import Table, Values, spread

ONE_MORE = "one more: "  # how the name of what one more positive costs begins, before the kind of step


@dataclass(frozen=True, kw_only=True)
class Step(SetUp):
    kind: str
    size: Mapping[str, int | str]

    def job(self, seed: int) -> Weighing:
        return Weighing(self.keys(seed=seed), kind=self.kind, size=self.size)


def step(name: str, kind: str, *, paper: float | None = None, **size: Any) -> Step:
    columns = {"method": name, "positives": size["keys"], "batch": size["batch"]}
    return Step(columns=columns, kind=kind, size=size, paper=paper)


@dataclass(frozen=True, kw_only=True)
class Costs(Sweep):
    """Each seed is one more repetition, in processes of their own."""

    takes_images: ClassVar[bool] = False
    variables: tuple[str, ...] = ("method", "positives", "batch")
    measured: tuple[str, ...] = ("device", "threads", "milliseconds", "step_bytes")
    judged: str = "milliseconds"
    y: str = "time of a step, ms"
    x: tuple[str, str] | None = ("positives", "positives per query, K")
    label: Name = "{method}, {positives}".format_map
    series: Name = "{method}".format_map
    caption: str = "Ratio over repetitions"

    def columns(self, table: str = "") -> tuple[str, ...]:
        return (*self.variables, "seed", *self.measured, "seconds")

    def check(self, setting: Setting, store: Store) -> None:
        here = machine(setting)
        for row in store.rows():
            if not row.items() >= here.items():
                raise UserError(
                    f"{store.path()} was measured on {row['device']} with {row['threads']} threads, and this would be "
                    f"{here['device']} with {here['threads']}: name another --results, or the same --device and "
                    "--threads"
                )

    def values(self, found: Found) -> Values:
        """Beside those of each number of positives, what one more costs by a fitted line."""
        values = super().values(found)
        points: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for label, rows in self.setups(found).items():
            for seed, value in values[label].items():
                points.setdefault((rows[0]["method"], seed), []).append((float(rows[0]["positives"]), value))
        slopes: dict[str, dict[int, float]] = {}
        for (method, seed), line in points.items():
            if len(line) > 1:
                slopes.setdefault(f"{ONE_MORE}{method}", {})[seed] = linear_regression(*zip(*line, strict=True)).slope
        return {**values, **slopes}

    def tables(self, found: Found) -> list[Table]:
        values, paper, rows = self.values(found), self.published(found.setting), []
        for label, [first, *_] in self.setups(found).items():
            mine = list(values[label].values())
            theirs = [f"{paper[label]:g}" if label in paper else "–"] if paper else []
            rows.append((*(first[name] for name in self.variables), spread(mine), str(len(mine)), *theirs))
        last = ["the paper's, ms (GPU)"] * bool(paper)
        header = ("", *self.variables[1:], self.y, "repetitions", *last)
        return [Table("A step: mean ± standard deviation over repetitions", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        self.draw_values(axes, found)
        for each in made.axes:  # also that of the paper's points
            each.set_ylim(bottom=0)
        return made

    def shown_seeds(self, found: Found) -> str:
        repetitions = len(found.setting.seeds)
        return f"{repetitions} repetition{'s, minimum to maximum' if repetitions > 1 else ''}"

    def rivals(self, *_: object) -> None:
        """A step leaves no encoder."""
