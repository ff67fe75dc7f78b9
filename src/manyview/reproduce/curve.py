"""Recipes that draw a number against the course of the training."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from manyview.reproduce.plots import curves, figure
from manyview.reproduce.recipe import Found, Name, Recipe, grouped, seeds_of
from manyview.reproduce.verdict import ABOVE, Comparison, Interval, Table, Values, spread

MARKS = {True: " ✓", False: " ✗", None: ""}


def of(imbalance: str) -> str:
    """What the name of a method is followed by."""
    return "" if imbalance == "none" else f", {imbalance}"


@dataclass(frozen=True, kw_only=True)
class Curves(Recipe):
    """One curve for each method, in panels by the imbalance of the set. The paper has the first of a pair above the
    second all the way: that is judged on average over the snapshots, as those of one run are no evidence each."""

    variables: tuple[str, ...] = ("method", "imbalance")
    drawn: tuple[str, ...]  # columns of which the first is drawn, and `max_entropy` as a line
    label: Name = lambda row: f"{row['method']}{of(row['imbalance'])}"
    imbalances: tuple[str, ...] = ("none",)
    y: str
    caption: str = "Paired differences over seeds, on average over the snapshots where none is named, in {unit}"
    scale: float = 1.0  # so many of the unit of differences are one of the column's own
    digits: int = 1
    grows: Sequence[str] = ()  # curves that end above their first snapshot, by the paper

    def columns(self, table: str = "") -> tuple[str, ...]:
        return (*self.variables, "seed", "steps", "step", "epoch", *self.drawn, "seconds")

    def values(self, found: Found) -> Values:
        """That of a curve is its mean over the snapshots after the start. Those are counted, as those of methods with
        other batches lie at other steps."""
        values: dict[str, dict[int, float]] = {}
        for label, rows in self.setups(found).items():
            for seed, mine in grouped(rows, lambda row: int(row["seed"])).items():
                points = sorted((int(row["step"]), self.scale * float(row[self.drawn[0]])) for row in mine)
                curve = [value for step, value in points if step]
                named = {label: sum(curve) / len(curve)} if curve else {}
                named |= {f"{label}, snapshot {number}": value for number, value in enumerate(curve, 1)}
                for name, value in named.items():
                    values.setdefault(name, {})[seed] = value
        return values

    def last(self, found: Found) -> int:
        """The number of the last snapshot."""
        return max((len({row["step"] for row in rows} - {"0"}) for rows in self.setups(found).values()), default=0)

    def pairs(self, found: Found) -> list[Comparison]:
        """The comparisons of curves that it has at this scale."""
        here = self.labelled(found.setting).keys()
        return [each for each in self.comparisons if {each.first, each.second} <= here]

    def asked(self, found: Found) -> Sequence[Comparison]:
        here, last = self.labelled(found.setting), max(1, self.last(found))
        growing = (Comparison(f"{name}, snapshot {last}", f"{name}, snapshot 1") for name in self.grows if name in here)
        return [*growing, *self.pairs(found)]

    def tables(self, found: Found) -> list[Table]:
        """Each curve in a line, and each pair at each snapshot, as these are too many to read below each other."""
        first, values, numbers = self.drawn[0], self.values(found), range(1, 1 + self.last(found))
        ends, rows = [], []
        for mine in self.setups(found).values():
            steps = sorted({int(row["step"]) for row in mine})
            shown = [
                spread([float(row[first]) for row in mine if row["step"] == str(step)], self.digits)
                for step in (steps[len(steps) // 2], steps[-1])
            ]
            ends.append((mine[0]["method"], mine[0]["imbalance"], *shown, seeds_of(mine)))
        for pair in self.pairs(found):
            snapshots = (f", snapshot {number}" for number in numbers)
            cells = [marked(Comparison(pair.first + at, pair.second + at).found(values)) for at in snapshots]
            rows += [(f"{pair.first} − {pair.second}", *cells)] if any(cells) else []
        header = ("", "imbalance", f"{first}, halfway", f"{first}, at the end", "seeds")
        caption = f"Differences at each snapshot, in {self.unit} (✓ clearly above 0, ✗ clearly below)"
        return [
            Table("Mean ± standard deviation over seeds", header, tuple(ends)),
            Table(caption, ("", *(f"snapshot {number}" for number in numbers)), tuple(rows)),
        ]

    def draw(self, found: Found) -> Figure:
        """Over optimizer steps of equally many views on a laptop, over epochs as in the paper."""
        time, words = ("step", "optimizer steps") if found.setting.scale == "laptop" else ("epoch", "epochs")
        made, panels = figure(len(self.imbalances))
        for axes, imbalance in zip(panels, self.imbalances, strict=True):
            here = [row for row in found[""] if row["imbalance"] == imbalance]
            points: dict[str, dict[float, list[float]]] = {}
            for row in here:
                points.setdefault(row["method"], {}).setdefault(float(row[time]), []).append(float(row[self.drawn[0]]))
            title = "" if len(panels) == 1 else "whole set" if imbalance == "none" else f"{imbalance} imbalance"
            curves(axes, points, x=words, y=self.y, title=title)
            for most in {float(row["max_entropy"]) for row in found[""] if "max_entropy" in row}:
                axes.axhline(most, color="#777", linestyle=":", linewidth=1.2)
                place = ("axes fraction", "data")
                axes.annotate("maximum", (1, most), xycoords=place, ha="right", va="bottom", fontsize=8)
        return made


def marked(difference: Interval | None) -> str:
    return "" if difference is None else f"{difference}{MARKS[difference.within(*ABOVE)]}"
