"""Plots as SVG text, to be put into a page as they are.

Only matplotlib's object interface is used, so any number of threads can draw. The ink is the text colour of the page
around, light or dark. The same input gives the same text; ids carry the plot's name, so that plots can share a page.
"""

import io
import math
import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from manyview.diagnose.embeddings import separation
from manyview.evaluate.result import Metric

# One colour for one meaning, in every plot and in the page; all of them legible on white and on near-black.
TRAINED, RANDOM, DIFFERENT = "#3b7ddd", "#8b93a1", "#e0862f"

# Stand-ins that the page's own colours replace in the SVG.
_INK, _GRID = "#101112", "#d3d4d5"
_THEMED = {_INK: "currentColor", _GRID: "var(--line, #d8dce2)"}
_POINTS = 800  # more than a plot has pixels across
_DOTS = 40
_ROUND = [1, 2, 2.5, 5, 10]


def line_plot(
    name: str,
    steps: Sequence[float],
    values: Sequence[float],
    *,
    title: str,
    colour: str = TRAINED,
    smoothed: bool = False,
    percent: bool = False,
    from_zero: bool = False,
    log_if_wide: bool = False,
    reference: tuple[str, float] | None = None,
) -> str:
    """Values over optimizer steps; those that are not finite are left out. `title` names them, with their unit.

    `smoothed` adds the mean over 2 % of the values around each. `log_if_wide` makes the axis logarithmic when the
    values span more than two decades, but for a few at either end. `reference` is a labelled horizontal line.
    """
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    figure = _figure(4.4, 2.5)
    axes = figure.subplots()
    _style(axes, title)
    dots = "o" if len(y) <= _DOTS else None  # a line through few values hides how few they are
    if smoothed:
        axes.plot(*_thin(x, y), color=colour, alpha=0.35, linewidth=0.8)
        axes.plot(*_thin(x, smooth(y, max(1, len(y) // 50))), color=colour, linewidth=1.9, marker=dots, markersize=4)
    else:
        axes.plot(*_thin(x, y), color=colour, linewidth=1.9, marker=dots, markersize=4)
    if reference is not None:
        _reference_line(axes, *reference)
    logarithmic = log_if_wide and _is_wide(y)
    _scale(axes, x, from_zero=from_zero, logarithmic=logarithmic)
    if percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g} %"))
    words = [_describe(title, x, y, percent)]
    words += [f"Dashed line: {reference[0]}."] if reference is not None else []
    words += ["Logarithmic axis."] if logarithmic else []
    return _svg(figure, name, " ".join(words))


def _is_wide(values: NDArray[np.float64]) -> bool:
    """Whether all are positive and most span two decades: the first loss, against a random queue, does not count."""
    if not (values > 0).all() or not len(values):
        return False
    low, high = np.quantile(values, (0.02, 0.98))
    return bool(high > 100 * low)


def similarity_plot(name: str, similarities: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """One panel for each encoder: similarities (N,) of the views of one image beside those (P,) of two images."""
    figure = _figure(4.8, 1.25 * len(similarities) + 0.7)
    panels = figure.subplots(len(similarities), 1, sharex=True, squeeze=False)[:, 0]
    everything = [sample for pair in similarities.values() for sample in pair]
    low, high = min(float(sample.min()) for sample in everything), max(float(sample.max()) for sample in everything)
    bins = np.linspace(low, high + 1e-6, 41)
    words = []
    for axes, (encoder, (same, different)) in zip(panels, similarities.items(), strict=True):
        parted = f"{encoder} encoder, separation {separation(same, different):.3f}"
        _style(axes, parted)
        axes.hist(different.numpy(), bins, density=True, color=DIFFERENT, alpha=0.6, label="different images")
        axes.hist(same.numpy(), bins, density=True, color=TRAINED, alpha=0.6, label="views of the same image")
        axes.set_yticks([])
        words.append(f"{parted}: same image {float(same.mean()):.2f}, different images {float(different.mean()):.2f}")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=2, frameon=False, fontsize=9, labelcolor=_INK)
    panels[-1].set_xlabel("mean cosine similarity", fontsize=9, color=_INK)
    return _svg(figure, name, f"Histograms of similarities. {'; '.join(words)}.")


def layer_plot(name: str, layers: Sequence[str], found: Mapping[str, Sequence[Metric | None]], *, title: str) -> str:
    """A metric over the layers, one line for each encoder ("trained", "random"); None where it was not measured."""
    figure = _figure(4.8, 2.7)
    axes = figure.subplots()
    _style(axes, title)
    words = []
    share = all(each.unit == "%" for metrics in found.values() for each in metrics if each is not None)
    for encoder, metrics in found.items():
        values = np.array([math.nan if each is None else each.value for each in metrics])
        colour = TRAINED if encoder == "trained" else RANDOM
        axes.plot(np.arange(len(layers)), values, color=colour, linewidth=1.9, marker="o", markersize=4, label=encoder)
        pairs = zip(layers, metrics, strict=True)
        measured = [f"{layer} {each.written(each.value)}" for layer, each in pairs if each is not None]
        words.append(f"{encoder} encoder: {', '.join(measured)}")
    turned = max(map(len, layers)) * len(layers) > 48  # more letters than fit side by side
    axes.set_xticks(np.arange(len(layers)), layers, rotation=30 if turned else 0, ha="right" if turned else "center")
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_ROUND))
    if share:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=9, labelcolor=_INK)
    return _svg(figure, name, f"{title}. {'; '.join(words)}.")


def smooth(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """The mean over `window` values around each; at the ends, over those that are there."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    centre = np.arange(len(values))
    start = np.maximum(centre - (window - 1) // 2, 0)
    stop = np.minimum(centre + window // 2 + 1, len(values))
    mean: NDArray[np.float64] = (total[stop] - total[start]) / (stop - start)
    return mean


def _thin(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most `_POINTS` points, each the mean of equally many: a long run must not make a heavy page."""
    each = math.ceil(len(x) / _POINTS)
    if each <= 1:
        return x, y
    starts = np.arange(0, len(x), each)
    counts = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / counts, np.add.reduceat(y, starts) / counts


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=_INK, parse_math=False)
    axes.patch.set_alpha(0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_GRID, linewidth=0.7)
    axes.tick_params(colors=_INK, labelsize=9, length=0, which="both")
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_GRID)


def _scale(axes: Axes, steps: NDArray[np.float64], *, from_zero: bool, logarithmic: bool) -> None:
    if len(steps) == 1:
        axes.set_xlim(steps[0] - 1, steps[0] + 1)
    axes.set_xlabel("step", fontsize=9, color=_INK)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=_ROUND, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    if logarithmic:
        axes.set_yscale("log")
        return
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_ROUND))
    if from_zero:
        axes.set_ylim(bottom=0)


def _reference_line(axes: Axes, label: str, value: float) -> None:
    axes.axhline(value, color=RANDOM, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        label,
        (1, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=9,
        color=_INK,
    )


def _describe(title: str, x: NDArray[np.float64], y: NDArray[np.float64], percent: bool) -> str:
    if not len(y):
        return f"{title}: no values."
    first, last, low, high = (f"{v:.1%}" if percent else f"{v:.4g}" for v in (y[0], y[-1], y.min(), y.max()))
    return f"{title}: from {first} at step {x[0]:.0f} to {last} at step {x[-1]:.0f}; lowest {low}, highest {high}."


def _svg(figure: Figure, name: str, description: str) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    for stand_in, themed in _THEMED.items():
        text = text.replace(stand_in, themed)
    # matplotlib's ids are partly random: those in use get a number in the order of their appearance, the others go.
    used = dict.fromkeys(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    ids = {found: f"{name}-{number}" for number, found in enumerate(used)}
    text = re.sub(r' id="([^"]+)"', lambda match: f' id="{ids[match[1]]}"' if match[1] in ids else "", text)
    text = re.sub(r'(url\(#|href="#)([^")]+)', lambda match: match[1] + ids[match[2]], text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1).strip()
