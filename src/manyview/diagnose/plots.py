"""Plots as SVG text, to be put into a page as they are.

Only matplotlib's object interface is used, so any number of threads can draw. The ink is the text colour of the page around
(light or dark), the same input gives the same text, and ids carry the plot's name, so that plots can share a page.
"""

import io
import math
import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray
from torch import Tensor

from manyview.diagnose.embeddings import separation

__all__ = ["DIFFERENT", "RANDOM", "TRAINED", "line_plot", "similarity_plot", "smooth"]

# One colour for one meaning, in every plot and in the page; all of them legible on white and on near-black.
TRAINED, RANDOM, DIFFERENT = "#3b7ddd", "#8b93a1", "#e0862f"

# Stand-ins that the page's own colours replace in the SVG.
_INK, _GRID = "#101112", "#d3d4d5"
_THEMED = {_INK: "currentColor", _GRID: "var(--line, #d8dce2)"}
_POINTS = 800  # more than a plot has pixels across


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
    markers: bool = False,
    reference: tuple[str, float] | None = None,
) -> str:
    """Values over optimizer steps. `reference` is a labelled horizontal line. Values that are not finite are left out.

    The axis is logarithmic when the values are positive and span more than two decades.
    """
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    figure, axes = _figure(title)
    if smoothed:
        axes.plot(*_thin(x, y), color=colour, alpha=0.35, linewidth=0.8)
        axes.plot(*_thin(x, smooth(y, max(1, len(y) // 50))), color=colour, linewidth=1.9)
    else:
        axes.plot(*_thin(x, y), color=colour, linewidth=1.9, marker="o" if markers else None, markersize=4)
    if reference is not None:
        _reference_line(axes, *reference)
    _step_axis(axes, x)
    if len(y) and y.min() > 0 and y.max() > 100 * y.min():
        axes.set_yscale("log")
    elif from_zero:
        axes.set_ylim(bottom=0)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None, symbol=" %"))
    return _svg(figure, name, _describe(title, x, y, percent))


def similarity_plot(name: str, similarities: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """One panel for each encoder: similarities of the views of one image (N,) beside those of two different images (P,).

    The panels share the axis of similarities; each has its own bins, so that a narrow distribution stays visible.
    """
    figure = Figure(figsize=(7.6, 1.9 * len(similarities) + 0.5), layout="constrained")
    figure.patch.set_alpha(0)
    panels = figure.subplots(len(similarities), 1, sharex=True, squeeze=False)[:, 0]
    words = []
    for axes, (encoder, (same, different)) in zip(panels, similarities.items(), strict=True):
        _style(axes)
        bins = _bins(same, different)
        axes.hist(different.numpy(), bins, density=True, color=DIFFERENT, alpha=0.6, label="different images")
        axes.hist(same.numpy(), bins, density=True, color=TRAINED, alpha=0.6, label="views of the same image")
        parted = separation(same, different)
        axes.set_title(f"{encoder} encoder – separation {parted:.3f}", loc="left", fontsize=10, color=_INK)
        axes.set_yticks([])
        words.append(
            f"{encoder} encoder: same image {float(same.mean()):.2f}, different images {float(different.mean()):.2f}, "
            f"separation {parted:.3f}"
        )
    panels[0].legend(loc="upper left", frameon=False, fontsize=9, labelcolor=_INK)
    panels[-1].set_xlabel("mean cosine similarity of the features", fontsize=9, color=_INK)
    return _svg(figure, name, "Histogram of similarities. " + "; ".join(words) + ".")


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


def _bins(*samples: Tensor) -> NDArray[np.float64]:
    low = min(float(sample.min()) for sample in samples)
    high = max(float(sample.max()) for sample in samples)
    margin = max(high - low, 1e-3) / 50
    return np.linspace(low - margin, high + margin, 50)


def _figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.0, 2.8), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=10, color=_INK)
    _style(axes)
    return figure, axes


def _style(axes: Axes) -> None:
    axes.patch.set_alpha(0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_GRID, linewidth=0.7)
    axes.tick_params(colors=_INK, labelsize=9, length=0, which="both")
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_GRID)


def _step_axis(axes: Axes, steps: NDArray[np.float64]) -> None:
    if len(steps) == 1:
        axes.set_xlim(steps[0] - 1, steps[0] + 1)
    axes.set_xlabel("step", fontsize=9, color=_INK)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _reference_line(axes: Axes, label: str, value: float) -> None:
    axes.axhline(value, color=RANDOM, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        label,
        (1, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
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
    figure.savefig(buffer, format="svg", metadata={key: None for key in ("Creator", "Date", "Format", "Type")})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, themed in _THEMED.items():
        text = text.replace(stand_in, themed)
    # matplotlib's ids are partly random; numbered in the order of their appearance they are not, and the name keeps them apart.
    ids = {found: f"{name}-{number}" for number, found in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', text)))}
    text = re.sub(r'\bid="([^"]+)"', lambda match: f'id="{ids[match[1]]}"', text)
    text = re.sub(r'(url\(#|href="#)([^")]+)', lambda match: match[1] + ids.get(match[2], match[2]), text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1).strip()
