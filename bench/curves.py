"""How time and memory of a step grow: jcl against explicit pairs with the keys, the queue and the batch, cacr with its
positives."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Any

from rich.console import Console

from bench.race import machine, write
from bench.steps import BATCH, KEYS
from manyview.cost.point import measured
from manyview.cost.steps import QUEUE

THREADS = 2
REPEATS = 3
KINDS = ("jcl", "vanilla", "vanilla, all branches")
FORWARD = "forward pass"
HOW = (
    "Each point is a fresh process: the median of three steps after one, on ready views of 32 px with `tiny`; memory "
    "is the process's peak resident size (VmHWM on Linux) beyond its size before the first step."
)


@dataclass(frozen=True)
class Axis:
    name: str
    label: str
    values: tuple[int, ...]
    fixed: dict[str, int]
    kinds: tuple[str, ...] = KINDS
    flag: str = ""  # of the measured step, where it is not the name


AXES = (
    Axis("keys", "keys per sample, M′", (1, 2, 4, 6, 8, 12, 16), {"queue": QUEUE, "batch": BATCH}),
    Axis("queue", "queue size, K", tuple(2**power for power in range(10, 18)), {"keys": KEYS, "batch": 128}),
    Axis("batch", "batch size, N", (32, 64, 128, 256, 512), {"keys": KEYS, "queue": QUEUE}),
    Axis("positives", "positives per query, K", (1, 2, 4, 6, 8, 10), {"batch": 128}, kinds=("cacr",), flag="keys"),
)


def measure(results: Path, console: Console, quick: bool) -> None:
    """Measures all points of all curves and keeps each axis in a file."""
    for axis in AXES:
        curves: dict[str, list[dict[str, float]]] = {kind: [] for kind in axis.kinds}
        with console.status("") as status:
            for kind, value in points(axis, quick):
                status.update(f"curves: {kind}, {axis.label} = {value}")
                settings = {**axis.fixed, axis.flag or axis.name: value}
                curves[kind].append({axis.name: value, **point(kind, settings, quick)})
            record: dict[str, Any] = {
                "name": f"curves-{axis.name}",
                "axis": axis.name,
                "label": axis.label,
                "fixed": axis.fixed,
                "how": HOW,
                "threads": THREADS,
                "curves": curves,
            }
            if axis.name == "keys":
                status.update("curves: forward pass")
                record |= slopes(curves, point(FORWARD, {"keys": 1, **axis.fixed}, quick))
        write(results / f"{record['name']}.json", {**record, **machine()})
        console.print(f"curves over {axis.label}: {sum(map(len, curves.values()))} points", highlight=False)


def points(axis: Axis, quick: bool) -> Iterator[tuple[str, int]]:
    """The kinds take turns at every value, so that a drift of the machine's speed touches all alike."""
    values = axis.values[:2] if quick else axis.values
    return ((kind, value) for value in values for kind in axis.kinds)


def point(kind: str, settings: dict[str, int], quick: bool) -> dict[str, float]:
    if quick:
        settings = {**settings, "batch": min(32, settings["batch"])}
    return measured(kind, settings, threads=THREADS, repeats=1 if quick else REPEATS)


def slopes(curves: dict[str, list[dict[str, float]]], forward: dict[str, float]) -> dict[str, Any]:
    """What one more key costs, beside the time of the forward pass that it takes."""
    lines = {
        kind: linear_regression([entry["keys"] for entry in curve], [entry["seconds"] for entry in curve])
        for kind, curve in curves.items()
    }
    return {
        "forward_pass": forward,
        "fits": {kind: {"seconds_per_key": slope, "seconds_at_none": start} for kind, (slope, start) in lines.items()},
    }
