"""`python -m bench.point`: time and peak memory of one kind of step, in a process of its own, as one line of JSON.

The most resident memory is a property of a whole process, and an allocator keeps what it once had: hence a fresh one.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

from bench.race import Work
from bench.steps import KEYS, QUEUE, SIZE, Ready, augmentation, endless, forward_pass, loop, method_of

METHODS = {
    "jcl": ("jcl", {}),
    "vanilla": ("vanilla", {}),
    "vanilla, all branches": ("vanilla", {"all_branches": True}),
    "cacr": ("cacr", {}),
}


def measure(kind: str, *, keys: int, queue: int, batch: int, repeats: int) -> dict[str, float]:
    images = torch.randint(0, 256, (batch, 3, SIZE, SIZE), dtype=torch.uint8)
    once: Work
    if kind == "forward pass":
        once = forward_pass(Ready(augmentation(1), images).made[0])
    else:
        name, settings = METHODS[kind]
        positives = {"views": 1 + keys} if kind == "cacr" else {"keys": keys}
        ready = Ready(augmentation(1 + keys), images)
        steps = loop(method_of(name, queue=queue, **positives, **settings), endless(images), ready)
        once = steps.__next__
    forget_peak()
    before = peak()
    times = []
    for turn in range(-1, repeats):
        start = time.perf_counter()
        once()
        if turn >= 0:
            times.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(times),
        "least": min(times),
        "most": max(times),
        "peak_bytes": peak(),
        "step_bytes": peak() - before,
    }


def forget_peak() -> None:
    """Lets the peak start anew from what is resident now, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def peak() -> int:
    """Bytes. Where it can be had, not getrusage's figure, which starts at the peak of the process that started this."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*METHODS, "forward pass"])
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--queue", type=int, default=QUEUE)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = measure(args.kind, keys=args.keys, queue=args.queue, batch=args.batch, repeats=args.repeats)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
