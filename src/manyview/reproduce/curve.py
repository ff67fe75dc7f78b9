"""Recipes that draw a number against the course of the training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from matplotlib.figure import Figure

from manyview.reproduce.job import Job
from manyview.reproduce.plots import curves, figure
from manyview.reproduce.recipe import Found, Recipe, grouped, of_one_seed, seeds_of
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Compared, Comparison, Difference, Table, compare, paired, spread

__all__ = ["Curves"]

MARKS = {True: " ✓", False: " ✗", None: ""}


@dataclass(frozen=True, kw_only=True)
class Curves(Recipe):
    """One curve for each method, in panels by the imbalance of the set. The paper has the first of a pair above the
    second all the way: that is judged on average over the snapshots, as those of one run are no evidence each."""

    imbalances: tuple[str, ...] = ("none",)
    measured: tuple[str, ...]  # columns, of which the first is drawn, and of which `max_entropy` is drawn as a line
    y: str
    unit: tuple[str, float]  # in which differences are told, and how many of them the column's own is
    digits: int = 1
    pairs: Callable[[Setting], Sequence[tuple[str, str]]]
    grows: Callable[[Setting, str], Sequence[str]] = lambda *_: ()
    """By imbalance: methods whose curve ends above its first snapshot, by the paper."""

    def columns(self, table: str = "") -> tuple[str, ...]:
        return ("method", "imbalance", "seed", "steps", "step", "epoch", *self.measured, "seconds")

    def at_snapshots(self, found: Found) -> dict[tuple[str, str], dict[int, list[float]]]:
        """The values at the snapshots after the start, by method and imbalance and by seed. Snapshots are counted, as
        those of methods with other batches lie at other steps."""
        grouped: dict[tuple[str, str], dict[int, list[float]]] = {}
        for row in sorted(found[""], key=lambda row: int(row["step"])):
            if int(row["step"]):
                mine = grouped.setdefault((row["method"], row["imbalance"]), {}).setdefault(int(row["seed"]), [])
                mine.append(self.unit[1] * float(row[self.measured[0]]))
        return grouped

    def values(self, found: Found) -> dict[str, dict[int, float]]:
        """By name and seed: that of a curve for its mean, that of a snapshot for the value there."""
        values: dict[str, dict[int, float]] = {}
        for (method, imbalance), seeds in self.at_snapshots(found).items():
            for seed, curve in seeds.items():
                values.setdefault(at(method, imbalance), {})[seed] = sum(curve) / len(curve)
                for number, value in enumerate(curve, 1):
                    values.setdefault(at(method, imbalance, number), {})[seed] = value
        return values

    def last(self, found: Found) -> int:
        return max((len(curve) for seeds in self.at_snapshots(found).values() for curve in seeds.values()), default=0)

    def tables(self, found: Found) -> list[Table]:
        """Each curve in a line, and each pair at each snapshot, as these are too many to read below each other."""
        first, values, last = self.measured[0], self.values(found), self.last(found)
        ends, rows = [], []
        for imbalance in self.imbalances:
            here = [row for row in found[""] if row["imbalance"] == imbalance]
            for method, mine in grouped(here, itemgetter("method")).items():
                steps = sorted({int(row["step"]) for row in mine})
                shown = [
                    spread([float(row[first]) for row in mine if row["step"] == str(step)], self.digits)
                    for step in (steps[len(steps) // 2], steps[-1])
                ]
                ends.append((method, imbalance, *shown, seeds_of(mine)))
            for one, other in self.pairs(found.setting):
                names = [(at(one, imbalance, number), at(other, imbalance, number)) for number in range(1, 1 + last)]
                cells = [marked(paired(values.get(a, {}), values.get(b, {}))) for a, b in names]
                rows += [(f"{one} − {other}{of(imbalance)}", *cells)] if any(cells) else []
        header = ("", "imbalance", f"{first}, halfway", f"{first}, at the end", "seeds")
        caption = f"Differences at each snapshot, in {self.unit[0]} (✓ clearly above 0, ✗ clearly below)"
        places = tuple(f"snapshot {number}" for number in range(1, 1 + last))
        return [
            Table("Mean ± standard deviation over seeds", header, tuple(ends)),
            Table(caption, ("", *places), tuple(rows)),
        ]

    def caption(self) -> str:
        return f"Paired differences over seeds, on average over the snapshots where none is named, in {self.unit[0]}"

    def compared(self, found: Found) -> list[Compared]:
        last, growing, apart = max(1, self.last(found)), [], []
        for imbalance in self.imbalances:
            grown = self.grows(found.setting, imbalance)
            growing += [Comparison(at(method, imbalance, last), at(method, imbalance, 1)) for method in grown]
            apart += [Comparison(at(a, imbalance), at(b, imbalance)) for a, b in self.pairs(found.setting)]
        return compare([*growing, *apart], self.values(found))

    def draw(self, found: Found) -> Figure:
        """Over optimizer steps of equally many views on a laptop, over epochs as in the paper."""
        time, words = ("step", "optimizer steps") if found.setting.scale == "laptop" else ("epoch", "epochs")
        made, panels = figure(len(self.imbalances))
        for axes, imbalance in zip(panels, self.imbalances, strict=True):
            points: dict[str, dict[float, list[float]]] = {}
            for row in found[""]:
                if row["imbalance"] == imbalance:
                    line = points.setdefault(row["method"], {})
                    line.setdefault(float(row[time]), []).append(float(row[self.measured[0]]))
            title = "" if len(panels) == 1 else "whole set" if imbalance == "none" else f"{imbalance} imbalance"
            curves(axes, points, x=words, y=self.y, title=title)
            for most in {float(row["max_entropy"]) for row in found[""] if "max_entropy" in row}:
                axes.axhline(most, color="#777", linestyle=":", linewidth=1.2)
                place = ("axes fraction", "data")
                axes.annotate("maximum", (1, most), xycoords=place, ha="right", va="bottom", fontsize=8)
        return made

    def shown_seeds(self, found: Found) -> str:
        return self.counted_seeds(found, [len(seeds) for seeds in self.at_snapshots(found).values()])

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return of_one_seed(done, *self.pairs(found.setting)[0], "{method}".format_map)


def at(method: str, imbalance: str, snapshot: int | None = None) -> str:
    return f"{method}{of(imbalance)}{'' if snapshot is None else f', snapshot {snapshot}'}"


def of(imbalance: str) -> str:
    return "" if imbalance == "none" else f", {imbalance}"


def marked(difference: Difference | None) -> str:
    return "" if difference is None else f"{difference}{MARKS[difference.supports('above')]}"
