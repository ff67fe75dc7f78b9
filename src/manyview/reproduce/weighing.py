"""Time and memory of one kind of step, as a job."""

import fcntl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from manyview.cost.point import measured
from manyview.reproduce.job import Job, Row
from manyview.reproduce.setting import Setting
from manyview.run.build import pick_device

__all__ = ["Weighing", "machine"]

REPEATS = 5
ONE_AT_A_TIME = "weighing.lock"


def machine(setting: Setting) -> Row:
    """What steps are weighed on, as columns."""
    return {"device": pick_device(setting.device).type, "threads": str(setting.threads)}


@dataclass(frozen=True)
class Weighing(Job):
    kind: str = field(kw_only=True)
    settings: Mapping[str, int | str] = field(kw_only=True)

    @property
    def identity(self) -> str:
        # The seed is the number of the repetition: a process of its own for each.
        flags = " ".join(f"--{name} {value}" for name, value in self.settings.items())
        return f"weigh {self.kind} {flags} repetition {self.keys['seed']}"

    @property
    def expected_seconds(self) -> float:
        return 15.0

    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        settings = {**self.settings, "device": str(pick_device(setting.device))}
        if setting.quick:
            settings |= {"batch": 8, "queue": 64}
        repeats = 1 if setting.quick else REPEATS
        with open(directory.parent / ONE_AT_A_TIME, "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may share a recipe, but not the cores that are timed
            start = time.perf_counter()
            found = measured(self.kind, settings, threads=setting.threads, repeats=repeats)
            spent = time.perf_counter() - start
        whole = {"milliseconds": f"{1000 * found['seconds']:.3g}", "step_bytes": f"{found['step_bytes']:.0f}"}
        return [{**self.keys, **machine(setting), **whole, "seconds": f"{spent:.0f}"}]
