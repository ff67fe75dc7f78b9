"""Where the time of a line goes: the operators of both sides that take most of it."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from bench.race import Race, Side, machine, threads, write

PREFIX = "profile-"
TOP = 15


def measure(line: str, races: Iterable[Race], results: Path, console: Console) -> None:
    """Profiles one run of each side of a line, after one that is not counted, and keeps the result."""
    for race in races:
        for entry in race.lines:
            if entry.name != line:
                continue
            with threads(race.threads), console.status(f"profile of {line}"):
                sides = {name: profiled(race.sides[name]) for name in (entry.ours, entry.theirs)}
            record = {"name": line, "what": entry.what, "against": entry.against, "threads": race.threads}
            write(results / f"{PREFIX}{line}.json", {**record, "sides": sides, **machine()})
            return


def profiled(side: Side) -> dict[str, Any]:
    """Where the side runs, which may be another process."""
    own = getattr(side, "operators", None)
    return operators(side) if own is None else own()


def operators(side: Side) -> dict[str, Any]:
    """The `TOP` operators by the time in which no other operator runs inside them, and what is left outside all."""
    side()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        side()
        seconds = time.perf_counter() - start
    averages = sorted(profiler.key_averages(), key=lambda entry: entry.self_cpu_time_total, reverse=True)
    inside = sum(entry.self_cpu_time_total for entry in averages) / 1e6
    rows = [
        {"operator": entry.key, "seconds": entry.self_cpu_time_total / 1e6, "calls": entry.count}
        for entry in averages[:TOP]
    ]
    return {"seconds": seconds, "outside": max(0.0, seconds - inside), "operators": rows}
