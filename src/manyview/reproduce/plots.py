"""Figures of a recipe: ours in colour with the seeds' spread as a band, the paper's points in grey."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

PALETTE = ("#3b7ddd", "#e0862f", "#2f9e63", "#b04a9a", "#c93c37", "#6b6f76", "#8a6d3b", "#17899a")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", "-.", ":")  # each thinner than the one before, so that lines that coincide stay visible
PAPER = "#9aa0a8"
TICKS = 12  # so many values of x are all named
SPAN = 5.0  # points of accuracy that a figure shows at least


def figure(panels: int = 1) -> tuple[Figure, list[Axes]]:
    made = Figure(figsize=(5.2 * panels, 3.6), layout="constrained")
    axes = made.subplots(1, panels, squeeze=False)[0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.3)
    return made, list(axes)


def curves(
    axes: Axes, found: Mapping[str, Mapping[float, Sequence[float]]], *, x: str, y: str, title: str = "",
    paper: Mapping[str, Mapping[float, float]] | None = None, evenly: bool = False,
) -> None:  # fmt: skip
    """A line for each name through the means over seeds, and a band from the least to the most. The `paper`'s points
    have an axis of their own on the right, since set-ups of differing size share the shape at best. `evenly` spaces
    the values of x as categories."""
    places = sorted({value for points in found.values() for value in points})
    where = {value: float(number) if evenly else value for number, value in enumerate(places)}
    for number, (name, points) in enumerate(found.items()):
        at, values = zip(*((where[value], points[value]) for value in sorted(points)), strict=True)
        colour, marker, turn = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)], number % len(DASHES)
        axes.plot(at, list(map(statistics.mean, values)), color=colour, marker=marker, markersize=8 - 1.5 * turn,
                  linestyle=DASHES[turn], linewidth=3 - 0.6 * turn, label=name)  # fmt: skip
        axes.fill_between(at, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.18, linewidth=0)
    if evenly or len(places) <= TICKS:
        axes.set_xticks([where[value] for value in places], [f"{value:.4g}" for value in places])
    axes.set(xlabel=x, ylabel=y, title=title)
    right = _papers_axis(axes, y) if paper else axes
    for number, (name, theirs) in enumerate((paper or {}).items()):
        known = [(where[value], theirs[value]) for value in sorted(theirs) if value in where]
        right.plot(*zip(*known, strict=True), color=PAPER, marker=MARKERS[number], markersize=4, linestyle=":")
        if len(paper or {}) > 1 and known:
            right.annotate(name, known[0], (4, 5), textcoords="offset points", fontsize=7, color=PAPER)
    if len(found) > 1:
        legend(axes)


def bars(
    axes: Axes, groups: Mapping[str, Mapping[str, Sequence[float]]], *, y: str,
    paper: Mapping[str, Mapping[str, float]] | None = None, mark: Callable[[Sequence[float]], float] = statistics.mean,
) -> None:  # fmt: skip
    """A marker for the mean (or another `mark`) of each set-up on a line from the least to the most, with a stroke for
    each value, side by side for each group; the paper's values in grey on an axis of their own."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    right = _papers_axis(axes, y) if paper else axes
    for number, (label, group) in enumerate(groups.items()):
        shift, marker, colour = 0.16 * (number - (len(groups) - 1) / 2), MARKERS[number], PALETTE[number]
        theirs = (paper or {}).get(label, {})
        for place, name in enumerate(names):
            if values := group.get(name):
                at = [place + shift] * len(values)
                axes.plot(at, sorted(values), "_-", color=colour, linewidth=1.5, markersize=7)
                axes.plot(at[:1], [mark(values)], marker, color=colour)
            if name in theirs:
                right.plot([place + shift], [theirs[name]], marker, color=PAPER, markersize=4)
        axes.plot([], [], marker, color=colour, label=label)
        if theirs:
            axes.plot([], [], marker, color=PAPER, markersize=4, label=f"{label}, the paper's")
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right", fontsize=8)
    axes.set(ylabel=y, xlim=(-0.6, len(names) - 0.4))
    if len(groups) > 1:
        legend(axes)


def show_points(axes: Axes) -> None:
    """Accuracies on an axis that is long enough for tenths of a point not to look like a mountain."""
    low, high = axes.get_ylim()
    more = max(0.0, SPAN - (high - low)) / 2
    axes.set_ylim(low - more, high + more)


def _papers_axis(axes: Axes, y: str) -> Axes:
    right = axes.twinx()
    right.spines["top"].set_visible(False)
    right.tick_params(colors=PAPER)
    right.set_ylabel(f"the paper's {y}", color=PAPER)
    return right


def legend(axes: Axes) -> None:
    """One for all panels, which show the same set-ups; below them, where it covers nothing."""
    if not axes.figure.legends:
        handles, labels = axes.get_legend_handles_labels()
        axes.figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False,
                           fontsize=8)  # fmt: skip


def histograms(
    axes: Axes, counts: Mapping[str, Sequence[tuple[float, float]]], *, step: float, x: str, title: str,
    outlines: Mapping[str, Sequence[Sequence[tuple[float, float]]]],
) -> None:  # fmt: skip
    """Shares of images by the low edges of their bins: an area for each name, and thin `outlines` of its parts."""
    for number, (name, bins) in enumerate(counts.items()):
        left, share = _shares(bins)
        axes.bar(left, share, width=step, align="edge", color=PALETTE[number], alpha=0.45, label=name)
        for part in outlines[name]:
            left, share = _shares(part)
            edges = range(round(min(left) / step), round(max(left) / step) + 1)  # with the bins that hold nothing
            shares = {round(low / step): value for low, value in zip(left, share, strict=True)}
            middles = [(edge + 0.5) * step for edge in edges]
            heights = [shares.get(edge, 0.0) for edge in edges]
            axes.plot(middles, heights, color=PALETTE[number], linewidth=0.7, drawstyle="steps-mid")
    axes.set(xlabel=x, ylabel="share of the images, %", title=title)
    axes.locator_params(axis="x", nbins=5)
    legend(axes)


def _shares(bins: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    total = sum(count for _, count in bins) or 1
    return [low for low, _ in bins], [100 * count / total for _, count in bins]
