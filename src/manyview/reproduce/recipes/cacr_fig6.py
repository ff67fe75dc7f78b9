"""CACR, Fig. 6: a query, its positives and its negatives with their weights."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from manyview.reproduce.closeup import ORIGINAL, SHOWN, TILES, Weights
from manyview.reproduce.families import CACR_FAMILY, cacr_run
from manyview.reproduce.job import Job
from manyview.reproduce.plots import PALETTE
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store

__all__ = ["WeightsOfAQuery"]


class WeightsOfAQuery(Recipe):
    name = "cacr-fig6"
    where = "CACR, Fig. 6"
    title = "A query with its positives, nearest and farthest negatives, and the weights that CACR gives them"
    claim = "The positive that differs most, and the negatives that look most alike, get the largest weights."
    expectation = (
        "Weights of positives within a few per cent of each other; near negatives of similar colours and shapes."
    )
    remarks = (
        "A batch of 128 test images; query, positives and negatives are augmented views. A picture, no proof. Where "
        "the run is at hand its views stand above their weights, with the images that they are of; files of results "
        "hold the weights alone."
    )
    paper_setup = "CIFAR-10, AlexNet, 200 epochs (C.1)"

    def columns(self, table: str = "") -> tuple[str, ...]:
        return ("method", "seed", "steps", "role", "rank", "distance", "weight", "seconds")

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        method = "CACR (K = 4)"
        return [
            cacr_run(setting, {"method": method}, seed, CACR_FAMILY[method], looks=(Weights(),))
            for seed in setting.seeds
        ]

    def weights(self, found: Found, role: str) -> list[float]:
        """Of the first seed, largest first."""
        seed = found[""][0]["seed"] if found[""] else ""
        return [float(row["weight"]) for row in found[""] if (row["role"], row["seed"]) == (role, seed)]

    def tables(self, found: Found) -> list[Table]:
        rows = []
        for role in ("positive", "negative"):
            values = self.weights(found, role)
            if values:
                rows.append((role, str(len(values)), f"{values[0]:.4f}", f"{values[-1]:.4f}", f"{1 / len(values):.4f}"))
        header = ("", "how many", "largest weight", "smallest", "if all were alike")
        return [Table("Weights of one query (first seed)", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        paths = [path / TILES for path in found.places[:1]]  # that of the rows that come first, whose weights these are
        seen = bool(paths) and paths[0].exists()
        made = Figure(figsize=(12, 4.7 if seen else 2.6), layout="constrained")
        grid = made.add_gridspec(1 + 2 * seen, 1 + 4 + 2 * SHOWN, height_ratios=[1, 1, 1.3] if seen else None)
        positives, negatives = (self.weights(found, role) for role in ("positive", "negative"))
        if seen:
            named = ["query", *(f"π⁺ {weight:.3f}" for weight in positives)]
            named += [f"π⁻ {weight:.4f}" for weight in (*negatives[:SHOWN], *negatives[-SHOWN:])]
            with np.load(paths[0], allow_pickle=False) as file:
                for column, (tile, name) in enumerate(zip(file["tiles"], named, strict=False)):
                    show(made.add_subplot(grid[0, column]), tile, name)
                originals = [file[name] for name in file.files if name.startswith(ORIGINAL)]
            for column, original in zip(
                (0, *range(5, 5 + 2 * SHOWN)), originals, strict=False
            ):  # positives have the query's
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

    def shown_seeds(self, found: Found) -> str:
        return "".join(f"seed {row['seed']}" for row in found[""][:1])

    def verdict(self, found: Found) -> str:
        positives, negatives = (self.weights(found, role) for role in ("positive", "negative"))
        if not positives or not negatives:
            return "Not run."
        far, near = positives[0] / positives[-1], negatives[0] / negatives[-1]
        return (
            f"To be judged by eye, on one query: its farthest positive weighs {far:.2f} times its nearest, its nearest "
            f"negative {near:.1f} times its farthest."
        )


def show(axes: Axes, image: NDArray[np.uint8], name: str) -> None:
    axes.imshow(image.transpose(1, 2, 0), interpolation="nearest")
    axes.set_title(name, fontsize=8)
    axes.set_axis_off()
