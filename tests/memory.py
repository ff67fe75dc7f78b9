"""The memory that a call takes."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch


def allocated(function: Callable[[], object]) -> int:
    """Bytes that the operators of a call allocate in all."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    return sum(max(0, event.self_cpu_memory_usage) for event in profile.events())


def peak_memory(function: Callable[[], object]) -> int:
    """Most bytes that a call holds at once."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"])
    held = peak = 0
    for change in changes:
        held += change["args"]["Bytes"]
        peak = max(peak, held)
    return peak
