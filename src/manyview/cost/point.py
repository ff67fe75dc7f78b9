"""`python -m manyview.cost.point SETTINGS`: time and peak memory of one kind of step, in a process of its own; both the
settings and the answer are a line of JSON.

The most resident memory is a property of a whole process, and an allocator keeps what it once had: hence a fresh one.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from manyview.allocator import keep_freed_memory
from manyview.cost.steps import QUEUE, Ready, augmentation, endless, forward_pass, loop, method_config, method_of
from manyview.methods import find

FORWARD, ALL_BRANCHES = "forward pass", "vanilla, all branches"


def measured(kind: str, settings: Mapping[str, int | str], *, threads: int, repeats: int) -> dict[str, float]:
    """What a process of its own finds: seconds (median, least, most) of a step and its peak memory in bytes."""
    asked = json.dumps({"kind": kind, **settings, "threads": threads, "repeats": repeats})
    command = [sys.executable, "-m", "manyview.cost.point", asked]
    # Alone in its process a step has the threads' habits that a user's has.
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(
    kind: str, *, batch: int, threads: int, repeats: int, keys: int = 5, queue: int = QUEUE, backbone: str = "tiny",
    size: int = 32, device: str = "cpu",
) -> dict[str, float]:  # fmt: skip
    torch.set_num_threads(threads)
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
    if kind == FORWARD:
        once: Any = forward_pass(Ready(augmentation(1, size), images).made[0], backbone=backbone)
    else:
        method = method_of(kind.partition(",")[0], queue=queue, backbone=backbone, **positives(kind, keys)).to(device)
        ready = Ready(augmentation(method.view_count(method.config), size), images)
        ready.made = ready.made.to(device)
        once = loop(method, endless(images), ready, device=device).__next__
    keep_freed_memory()  # as the command line does, but only now: what the set-up freed is not in the step's way
    forget_peak(device)
    before = peak(device)
    times = []
    for turn in range(-1, repeats):
        start = time.perf_counter()
        once()  # the loop reads the loss, so that a device has done its work by then
        if turn >= 0:
            times.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(times),
        "least": min(times),
        "most": max(times),
        "peak_bytes": peak(device),
        "step_bytes": peak(device) - before,
    }


def positives(kind: str, keys: int) -> dict[str, Any]:
    """So many positives of a query, in the words of the method; those with one only have no such word."""
    known = {field.name for field in fields(find(kind.partition(",")[0]).Config)}
    settings: dict[str, Any] = {"views": 1 + keys} if "views" in known else {"keys": keys} if "keys" in known else {}
    return {**settings, "all_branches": True} if kind == ALL_BRANCHES else settings


def config_of(kind: str, *, keys: int, queue: int = QUEUE) -> Any:
    """The method's settings in such steps."""
    return method_config(kind.partition(",")[0], queue=queue, **positives(kind, keys))


def forget_peak(device: str) -> None:
    """Lets the peak start anew from what is in use now, where the system can."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def peak(device: str) -> int:
    """Bytes. Where it can be had, not getrusage's figure, which starts at the peak of the process that started this."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
