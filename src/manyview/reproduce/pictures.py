"""Recipes whose figure the eye judges: histograms over images, the weights of a query, and a map around it."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from manyview.reproduce.job import Job, Row
from manyview.reproduce.looks import ORIGINAL, SHOWN, TILES, samples, two_sample
from manyview.reproduce.plots import PALETTE, figure, histograms, legend
from manyview.reproduce.recipe import Found, Recipe, grouped, of_one_seed
from manyview.reproduce.verdict import Table, Values

QUANTITIES = {
    "similarity": ("(a) similarity", "mean cosine of the views of an image"),
    "variance": ("(b) variance", "mean variance of a feature over the views of an image"),
}
ROLES = {"negative": "#c93c37", "positive": "#3b7ddd", "query": "#2f9e63"}
RANGE = 10


@dataclass(frozen=True, kw_only=True)
class Distributions(Recipe):
    """Histograms over images of two methods; the first has the larger similarities, by the paper."""

    measured: tuple[str, ...] = ("quantity", "low", "step", "count")
    methods: Mapping[str, str]  # names in tables, by those in rows
    caption: str = "Paired difference over seeds, in hundredths of cosine similarity"

    def by_method(self, found: Found, quantity: str) -> dict[str, dict[int, list[Row]]]:
        """The rows by the name of the method and by seed."""
        rows = [row for row in found[""] if row["quantity"] == quantity]
        methods = grouped(rows, lambda row: row["method"])
        by_seed = partial(grouped, key=lambda row: int(row["seed"]))
        return {name: by_seed(methods.get(method, [])) for method, name in self.methods.items()}

    def values(self, found: Found) -> Values:
        return {
            f"mean similarity of {name}": {seed: 100 * float(samples(rows).mean()) for seed, rows in seeds.items()}
            for name, seeds in self.by_method(found, "similarity").items()
        }

    def tables(self, found: Found) -> list[Table]:
        rows = []
        for seed in found.setting.seeds:
            for quantity, (title, _) in QUANTITIES.items():
                both = [samples(seeds[seed]) for seeds in self.by_method(found, quantity).values() if seed in seeds]
                if len(both) == len(self.methods):
                    means = (f"{float(values.mean()):.4g}" for values in both)
                    d, larger = two_sample(*both)
                    rows.append((str(seed), title, *means, f"{d:.3f}", f"{larger:.3f}"))
        first, second = self.methods.values()
        header = ("seed", "", f"{first}, mean", f"{second}, mean", "D", f"P({first} larger)")
        return [Table(f"{first} beside {second}, over images", header, tuple(rows))]

    def notes(self, found: Found) -> str:
        apart = [float(row[4]) for row in self.tables(found)[0].rows if row[1] == QUANTITIES["similarity"][0]]
        if not apart:
            return ""
        return (
            f"Within a seed D is {min(apart):.3f} to {max(apart):.3f}; it is 0 for equal distributions and 1 for "
            "separate ones. Only the direction is compared, as the paper prints no numbers."
        )

    def draw(self, found: Found) -> Figure:
        made, panels = figure(2)
        for axes, (quantity, (title, words)) in zip(panels, QUANTITIES.items(), strict=True):
            methods = self.by_method(found, quantity)
            every = {name: [row for rows in seeds.values() for row in rows] for name, seeds in methods.items()}
            step = max((float(row["step"]) for rows in every.values() for row in rows), default=0.0)
            counts = {name: merged(rows) for name, rows in every.items()}
            outlines = {name: [merged(rows) for rows in seeds.values()] for name, seeds in methods.items()}
            histograms(axes, counts, step=step, x=words, title=title, outlines=outlines)
        return made

    def shown_seeds(self, found: Found) -> str:
        return "seeds " + ", ".join(map(str, found.setting.seeds))

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return of_one_seed(done, tuple(self.methods))


def merged(rows: list[Row]) -> list[tuple[float, float]]:
    """The counts of these rows together, by the low edges of their bins."""
    total: dict[float, float] = {}
    for row in rows:
        total[float(row["low"])] = total.get(float(row["low"]), 0) + float(row["count"])
    return sorted(total.items())


@dataclass(frozen=True, kw_only=True)
class OneQuery(Recipe):
    """Of one query, which is that of the first seed."""

    def rows(self, found: Found) -> list[Row]:
        return [row for row in found[""] if row["seed"] == found[""][0]["seed"]]

    def values(self, found: Found) -> Values:
        return {}

    def verdict(self, found: Found) -> str:
        return self.notes(found) or "Not run."

    def shown_seeds(self, found: Found) -> str:
        return "".join(f"seed {row['seed']}" for row in found[""][:1])


@dataclass(frozen=True, kw_only=True)
class QueryWeights(OneQuery):
    """A query with its positives and negatives and their weights."""

    measured: tuple[str, ...] = ("role", "rank", "distance", "weight")

    def weights(self, found: Found) -> list[list[float]]:
        """Of the positives and of the negatives, largest first."""
        mine = self.rows(found)
        return [[float(row["weight"]) for row in mine if row["role"] == role] for role in ("positive", "negative")]

    def tables(self, found: Found) -> list[Table]:
        rows = [
            (role, str(len(values)), f"{values[0]:.4f}", f"{values[-1]:.4f}", f"{1 / len(values):.4f}")
            for role, values in zip(("positive", "negative"), self.weights(found), strict=True)
            if values
        ]
        header = ("", "number", "largest weight", "smallest weight", "uniform weight")
        return [Table("Weights of one query (first seed)", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        paths = [path / TILES for path in found.places[:1]]  # that of the first rows, whose weights these are
        seen = bool(paths) and paths[0].exists()
        made = Figure(figsize=(12, 4.7 if seen else 2.6), layout="constrained")
        grid = made.add_gridspec(1 + 2 * seen, 1 + 4 + 2 * SHOWN, height_ratios=[1, 1, 1.3] if seen else None)
        positives, negatives = self.weights(found)
        if seen:
            named = ["query", *(f"π⁺ {weight:.3f}" for weight in positives)]
            named += [f"π⁻ {weight:.4f}" for weight in (*negatives[:SHOWN], *negatives[-SHOWN:])]
            with np.load(paths[0], allow_pickle=False) as file:
                for column, (tile, name) in enumerate(zip(file["tiles"], named, strict=False)):
                    show(made.add_subplot(grid[0, column]), tile, name)
                originals = [file[name] for name in file.files if name.startswith(ORIGINAL)]
            of_query_and_negatives = (0, *range(5, 5 + 2 * SHOWN))  # positives have the query's
            for column, original in zip(of_query_and_negatives, originals, strict=False):
                show(made.add_subplot(grid[1, column]), original, "" if column else "the image")
        above = f" (above: {SHOWN} of either end)" if seen else ""
        for place, values, colour, words in (
            (grid[-1, :5], positives, PALETTE[0], "positives, farthest first"),
            (grid[-1, 5:], negatives, PALETTE[4], f"negatives, nearest first{above}"),
        ):
            axes = made.add_subplot(place)
            axes.bar(range(1, len(values) + 1), values, color=colour, width=0.9)
            axes.axhline(1 / max(1, len(values)), color="#777", linestyle=":", linewidth=1)
            axes.set(xlabel=words, ylabel="weight")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.spines[["top", "right"]].set_visible(False)
        return made

    def notes(self, found: Found) -> str:
        positives, negatives = self.weights(found)
        if not positives or not negatives:
            return ""
        return (
            "To be judged by eye, on one query: the farthest positive has "
            f"{positives[0] / positives[-1]:.2f} times the weight of the nearest, the nearest negative "
            f"{negatives[0] / negatives[-1]:.1f} times that of the farthest."
        )


def show(axes: Axes, image: NDArray[np.uint8], name: str) -> None:
    axes.imshow(image.transpose(1, 2, 0), interpolation="nearest")
    axes.set_title(name, fontsize=8)
    axes.set_axis_off()


@dataclass(frozen=True, kw_only=True)
class Neighbourhood(OneQuery):
    """t-SNE around a query, one line of panels for each of two methods."""

    measured: tuple[str, ...] = ("step", "epoch", "role", "x", "y", "distance")
    methods: tuple[str, str]
    radius: float

    def groups(self, found: Found) -> dict[tuple[str, int], list[Row]]:
        """The points, by method and step."""
        return grouped(self.rows(found), lambda row: (row["method"], int(row["step"])))

    def tables(self, found: Found) -> list[Table]:
        rows = []
        for (method, step), points in self.groups(found).items():
            near, far = (distances(points, role) for role in ("positive", "negative"))
            numbers = (statistics.mean(near), statistics.mean(far), statistics.stdev(far))
            rows.append((method, str(step), *(f"{each:.3f}" for each in numbers)))
        header = ("", "step", "positives, mean", "negatives, mean", "negatives, standard deviation")
        return [Table("Squared distances from the query (first seed)", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        made = Figure(figsize=(9.5, 6.4), layout="constrained")
        panels = made.subplots(2, 3, squeeze=False, sharex=True, sharey=True)
        groups, laptop = self.groups(found), found.setting.scale == "laptop"
        for line, method in zip(panels, self.methods, strict=True):
            steps = sorted(step for name, step in groups if name == method)
            for axes, step in zip(line, steps, strict=False):
                for role, colour in ROLES.items():
                    points = [row for row in groups[method, step] if row["role"] == role]
                    places = [[float(row[axis]) for row in points] for axis in ("x", "y")]
                    axes.scatter(*places, s=16 if role == "negative" else 36, color=colour, alpha=0.8, label=role)
                axes.add_patch(Circle((0, 0), self.radius, fill=False, linestyle="--", edgecolor="black"))
                when = f"step {step:,}" if laptop else f"epoch {float(groups[method, step][0]['epoch']):.0f}"
                axes.set(title=f"{method}, {when}", xlim=(-RANGE, RANGE), ylim=(-RANGE, RANGE), aspect="equal")
            line[0].set_ylabel("t-SNE, second axis")
        legend(panels[0][0])
        for axes in panels[-1]:
            axes.set_xlabel("t-SNE, first axis")
        return made

    def notes(self, found: Found) -> str:
        groups = self.groups(found)
        last = {method: groups[method, step] for method, step in sorted(groups, key=itemgetter(1))}
        if len(last) < len(self.methods):
            return "Undecided: one of the two was not run." if last else ""
        spreads = (f"{method} {statistics.stdev(distances(last[method], 'negative')):.3f}" for method in self.methods)
        return (
            "To be judged by eye, on one query. Standard deviation of its negatives' squared distances at the end: "
            f"{'; '.join(spreads)}."
        )

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return of_one_seed(done, self.methods[::-1])


def distances(points: list[Row], role: str) -> list[float]:
    return [float(row["distance"]) for row in points if row["role"] == role]
