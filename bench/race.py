"""A race: some sides that take turns, the lines that compare two of them each, and the files that keep the lines."""

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from threadpoolctl import threadpool_limits
from torch.profiler import ProfilerActivity, profile

from bench.lines import Line

Work = Callable[[], object]
Side = Callable[[], float]  # runs once and says how many seconds count

PACKAGES = ("manyview", "torch", "torchvision", "timm", "numpy", "pillow", "lightly", "kornia", "scikit-learn")
MEMORY_HOW = (
    "most bytes that PyTorch's CPU allocator held at once beyond those at the start, from torch.profiler's events"
)


@dataclass(frozen=True)
class Race:
    sides: dict[str, Side]
    lines: tuple[Line, ...]
    threads: int
    repeats: int
    facts: dict[str, Any] = field(default_factory=dict)  # what else a reader must know
    allocates: dict[str, Work] = field(default_factory=dict)  # sides whose peak memory is measured too


def timed(work: Work) -> Side:
    def side() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return side


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch, and the BLAS and OpenMP of everybody else, with this many threads."""
    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def run(race: Race, results: Path, console: Console) -> None:
    """Warms all sides up, lets them take turns, and keeps every line."""
    seconds: dict[str, list[float]] = {name: [] for name in race.sides}
    order = list(race.sides.items())
    console.print(f"racing: {' · '.join(race.sides)}", style="dim", highlight=False)
    with threads(race.threads), console.status("") as status:
        for turn in range(-1, race.repeats):
            for name, side in order:
                status.update(f"{name}: {'warm-up' if turn < 0 else f'{turn + 1} of {race.repeats}'}")
                taken = side()
                if turn >= 0:
                    seconds[name].append(taken)
            order.reverse()  # nobody always runs after the same other
        memory = {}
        for name, work in race.allocates.items():
            status.update(f"{name}: memory")
            memory[name] = peak_memory(work)
    for line in race.lines:
        record = compare(line, seconds[line.ours], seconds[line.theirs])
        if line.memory_bar is not None:
            record["memory"] = compare_memory(line, memory[line.ours], memory[line.theirs])
        write(results / f"{line.name}.json", {**record, "threads": race.threads, **race.facts, **machine()})
        console.print(f"{line.what} against {line.against}: {summary(record)}", highlight=False)


def compare(line: Line, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    pairs = list(zip(ours, theirs, strict=True))
    ratios = [mine / other if line.overhead else other / mine for mine, other in pairs]
    median = statistics.median(ratios)
    met = None if line.bar is None else (median <= line.bar if line.overhead else median >= line.bar)
    rates = {}
    if line.amount is not None:
        rates = {
            "unit": line.unit,
            "rates": {"ours": line.amount / statistics.median(ours), "theirs": line.amount / statistics.median(theirs)},
        }
    return {
        "name": line.name,
        "what": line.what,
        "against": line.against,
        "seconds": {"ours": ours, "theirs": theirs},
        **rates,
        "ratio": "ours / theirs" if line.overhead else "theirs / ours",
        "ratios": ratios,
        "median": median,
        "least": min(ratios),
        "most": max(ratios),
        "bar": line.bar,
        "bar_is": "most" if line.overhead else "least",
        "met": met,
    }


def compare_memory(line: Line, ours: int, theirs: int) -> dict[str, Any]:
    assert line.memory_bar is not None
    share = ours / theirs
    return {
        "how": MEMORY_HOW,
        "ours": ours,
        "theirs": theirs,
        "share": share,
        "bar": line.memory_bar,
        "met": share <= line.memory_bar,
    }


def summary(record: dict[str, Any]) -> str:
    """The outcome of a line in a few words."""
    words = f"{record['median']:.2f}× ({record['least']:.2f} – {record['most']:.2f})"
    if record["bar"] is not None:
        words += f", {'met' if record['met'] else 'missed'} (at {record['bar_is']} {record['bar']:g}×)"
    if "memory" in record:
        memory = record["memory"]
        verdict = "met" if memory["met"] else "missed"
        words += f"; {memory['share']:.2%} of the memory, {verdict} (at most {memory['bar']:.0%})"
    return words


def peak_memory(work: Work) -> int:
    """Bytes; see `MEMORY_HOW`."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as directory:
        trace = os.path.join(directory, "trace.json")
        profiler.export_chrome_trace(trace)
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    changes = sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"])
    held = peak = 0
    for change in changes:
        held += change["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def machine() -> dict[str, Any]:
    """What every file of results says of where and when it was made."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "platform": platform.system(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", ""),
        "versions": {"python": platform.python_version(), **_versions()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
