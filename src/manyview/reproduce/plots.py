"""Figures of a recipe: ours in colour with the seeds' spread as a band, the paper's points in grey."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

__all__ = ["COLOURS", "Curve", "bars", "curves", "figure", "histograms"]

COLOURS = ("#3b7ddd", "#e0862f", "#2f9e63", "#b04a9a", "#c93c37", "#6b6f76", "#8a6d3b", "#17899a")
PAPER = "#9aa0a8"


@dataclass(frozen=True)
class Curve:
    """Values over x, each of several seeds."""

    name: str
    points: Mapping[float, Sequence[float]]


def figure(panels: int = 1, *, width: float = 5.2, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    made = Figure(figsize=(width * panels, height), layout="constrained")
    axes = made.subplots(1, panels, squeeze=False)[0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.3)
    return made, list(axes)


def curves(
    axes: Axes,
    found: Sequence[Curve],
    *,
    x: str,
    y: str,
    title: str = "",
    paper: Mapping[str, Mapping[float, float]] | None = None,
    evenly: bool = False,
) -> None:
    """Lines through the means, bands from the least to the most. The `paper`'s points have an axis of their own on the
    right, since set-ups of differing size share the shape at best. `evenly` spaces the values of x as categories."""
    places = sorted({value for curve in found for value in curve.points})
    where = {value: float(number) if evenly else value for number, value in enumerate(places)}
    for number, curve in enumerate(found):
        colour, values = COLOURS[number % len(COLOURS)], sorted(curve.points)
        at = [where[value] for value in values]
        means = [statistics.mean(curve.points[value]) for value in values]
        axes.plot(at, means, color=colour, marker="o", markersize=4, label=curve.name)
        low, high = ([pick(curve.points[value]) for value in values] for pick in (min, max))
        axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
    if evenly:
        axes.set_xticks(range(len(places)), [f"{value:g}" for value in places])
    elif all(value.is_integer() for value in places):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=x, ylabel=y, title=title)
    if paper:
        _paper_points(axes, paper, where)
    if len(found) > 1:
        axes.legend(frameon=False, fontsize=8)


def _paper_points(axes: Axes, paper: Mapping[str, Mapping[float, float]], where: Mapping[float, float]) -> None:
    right = axes.twinx()
    right.spines["top"].set_visible(False)
    right.tick_params(colors=PAPER)
    right.set_ylabel("the paper's", color=PAPER)
    for marker, (name, points) in zip("sD^vP*", paper.items(), strict=False):
        known = [value for value in sorted(points) if value in where]
        places, values = [where[value] for value in known], [points[value] for value in known]
        right.plot(places, values, color=PAPER, marker=marker, markersize=4, linestyle=":")
        if len(paper) > 1 and known:
            right.annotate(name, (places[0], values[0]), (4, 5), textcoords="offset points", fontsize=7, color=PAPER)


def bars(
    axes: Axes,
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    y: str,
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """A dot for the mean of each set-up with a line from the least to the most, side by side for each group; the
    paper's values as grey squares on an axis of their own."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    right = axes.twinx() if paper else None
    for number, (label, group) in enumerate(groups.items()):
        shift = 0.16 * (number - (len(groups) - 1) / 2)
        for place, name in enumerate(names):
            values = group.get(name, ())
            if values:
                axes.plot([place + shift] * 2, [min(values), max(values)], color=COLOURS[number], linewidth=2)
                axes.plot([place + shift], [statistics.mean(values)], "o", color=COLOURS[number])
            if right is not None and paper is not None and name in paper.get(label, {}):
                right.plot([place + shift], [paper[label][name]], "s", color=PAPER, markersize=4)
        axes.plot([], [], "o", color=COLOURS[number], label=label)
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right", fontsize=8)
    axes.set(ylabel=y, xlim=(-0.6, len(names) - 0.4))
    if right is not None:
        right.set_ylabel("the paper's (grey)", color=PAPER)
        right.tick_params(colors=PAPER)
        right.spines["top"].set_visible(False)
    if len(groups) > 1:
        axes.legend(frameon=False, fontsize=8)


def histograms(
    axes: Axes,
    counts: Mapping[str, Sequence[tuple[float, float]]],
    *,
    step: float,
    x: str,
    title: str,
    outlines: Mapping[str, Sequence[Sequence[tuple[float, float]]]],
) -> None:
    """Shares of images by the low edges of their bins: an area for each name, and thin `outlines` of its parts."""
    for number, (name, bins) in enumerate(counts.items()):
        left, share = _shares(bins)
        axes.bar(left, share, width=step, align="edge", color=COLOURS[number], alpha=0.45, label=name)
        for part in outlines[name]:
            left, share = _shares(part)
            middles = [low + step / 2 for low in left]
            axes.plot(middles, share, color=COLOURS[number], linewidth=0.7, drawstyle="steps-mid")
    axes.set(xlabel=x, ylabel="share of the images, %", title=title)
    axes.legend(frameon=False, fontsize=8)


def _shares(bins: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    total = sum(count for _, count in bins) or 1
    return [low for low, _ in bins], [100 * count / total for _, count in bins]
