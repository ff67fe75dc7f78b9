"""The work of a recipe: pre-trainings and measured steps. A job depends on no other, survives an interruption and is
never done twice."""

import fcntl
import hashlib
import json
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console

from manyview.atomic import replacing
from manyview.cost.point import config_of, measured
from manyview.diagnose.facts import read_facts
from manyview.errors import UserError
from manyview.methods import find
from manyview.reproduce.resolved import Resolved, described, differing, of_config, of_fields, resolve
from manyview.reproduce.setting import Setting
from manyview.run import checkpoint
from manyview.run.build import build_augment
from manyview.run.device import pick_device
from manyview.run.files import CHECKPOINTS, CONFIG, ENCODER, PAGE
from manyview.run.flags import open_training, parse_run
from manyview.run.pretrain import pretrain, report, resume
from manyview.run.saved import saved_config

__all__ = ["LOCK", "Job", "Look", "Row", "Training", "Weighing", "alone", "digest", "machine", "place"]

LOCK = "lock"  # the file that a process holds while it works in a place
REPEATS, ONE_AT_A_TIME = 5, "weighing.lock"

Row = dict[str, str]
"""A line of a file of results, by column."""


class Look(Protocol):
    """Something that is measured on a finished run: one row, or the many of a curve. A dataclass of its settings."""

    @property
    def name(self) -> str: ...

    def __call__(self, run: Path, setting: Setting) -> list[Row]: ...


@dataclass(frozen=True)
class Job(ABC):
    """`perform` does the work, or what is left of it, in a directory of its own."""

    keys: Mapping[str, str]
    """The columns that tell its rows from those of other jobs."""
    table: str = field(default="", kw_only=True)
    """Which of the recipe's files of results it belongs to; most recipes have one, without a name."""
    waits_for: str = field(default="", kw_only=True)
    """What must be known before it can be started; empty when it is."""
    seconds: float = field(default=15.0, kw_only=True)
    """Expected on two cores."""

    def __str__(self) -> str:
        return ", ".join(value if name == "method" else f"{name} {value}" for name, value in self.keys.items())

    @property
    @abstractmethod
    def identity(self) -> str:
        """What is asked for, besides the images: equal for jobs of two recipes that share the work."""

    @abstractmethod
    def settings(self, images: str | None) -> Resolved:
        """All that decides its rows besides the seed, resolved for these images."""

    @abstractmethod
    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        """The rows that it adds to the results."""


@dataclass(frozen=True)
class Training(Job):
    """A pre-training and the looks at it when it is done."""

    words: tuple[str, ...] = field(kw_only=True)
    """What follows `manyview pretrain`, but for the images and the directory."""
    looks: tuple[Look, ...] = field(kw_only=True)

    @property
    def identity(self) -> str:
        return " ".join(self.words)

    def settings(self, images: str | None) -> Resolved:
        return self.trained(images or "") | described("looks", self.looks)

    def trained(self, images: str) -> Resolved:
        """What decides the run, without the looks."""
        at = self.words.index("--seed")
        return resolve((*self.words[:at], *self.words[at + 2 :]), images)

    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        run = directory / "run"
        self.carry_on(run, setting, console)
        found: list[Row] = [dict(self.keys)]
        spent = read_facts(run).seconds or 0.0
        fresh = any(not kept_at(look, directory / "looks").exists() for look in self.looks)
        for look in self.looks:
            rows, seconds = looked_at(look, run, setting, directory / "looks")
            found = [{**row, **more} for row in found for more in rows]
            spent += seconds
        if fresh:  # its page was written at the end of the training, without the evaluations
            method, config = saved_config(run)
            report(run, open_training(method, config), build_augment(method, config), console)
        return [{**row, "seconds": f"{spent:.0f}"} for row in found]

    def carry_on(self, run: Path, setting: Setting, console: Console) -> None:
        """Starts the run, resumes it where it was interrupted, or leaves it alone when it is done."""
        if (run / CONFIG).exists() and setting.images:
            method, config = saved_config(run)
            stored = {name: value for name, (value, _) in of_config(method.name, config).items()}
            if others := differing(stored, self.trained(setting.images)):
                raise UserError(f"{run} was made with other settings ({'; '.join(others)}): move it away")
        if all((run / name).exists() for name in (ENCODER, PAGE)):
            return
        if checkpoint.kept(run / CHECKPOINTS):
            method, config = saved_config(run)
            resume(run, method, config, open_training(method, config), console)
            return
        shutil.rmtree(run, ignore_errors=True)  # it ended before its first checkpoint
        method = find(self.words[0])
        own = ["--data", setting.train, "--out", str(run), "--device", setting.device]
        config, source = parse_run(method, [*self.words[1:], *own, "--workers", str(setting.workers)])
        pretrain(method, config, source, console)


def looked_at(look: Look, run: Path, setting: Setting, kept: Path) -> tuple[list[Row], float]:
    """What the look finds, and the seconds that it took; kept, so that another recipe need not look again."""
    path = kept_at(look, kept)
    if not path.exists():
        start = time.perf_counter()
        rows = look(run, setting)
        with replacing(path) as file:
            file.write(json.dumps({"rows": rows, "seconds": round(time.perf_counter() - start, 3)}).encode())
    record = json.loads(path.read_text(encoding="utf-8"))
    return record["rows"], record["seconds"]


def kept_at(look: Look, kept: Path) -> Path:
    return kept / f"{look.name}-{digest([repr(look)])}.json"


@dataclass(frozen=True)
class Weighing(Job):
    """Time and memory of one kind of step. The seed is the number of the repetition, each in a process of its own."""

    kind: str = field(kw_only=True)
    size: Mapping[str, int | str] = field(kw_only=True)

    @property
    def identity(self) -> str:
        flags = " ".join(f"--{name} {value}" for name, value in self.size.items())
        return f"weigh {self.kind} {flags} repetition {self.keys['seed']}"

    def settings(self, images: str | None) -> Resolved:
        asked = {name: int(value) for name, value in self.size.items() if name in ("keys", "queue")}
        step: Resolved = {f"step {name}": (value, False) for name, value in {**self.size, "kind": self.kind}.items()}
        return step | of_fields(config_of(self.kind, **asked))

    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        size = {**self.size, "device": str(pick_device(setting.device))}
        if setting.quick:
            size |= {"batch": 8, "queue": 64}
        with open(directory.parent / ONE_AT_A_TIME, "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may share a recipe, but not the cores that are timed
            start = time.perf_counter()
            found = measured(self.kind, size, threads=setting.threads, repeats=1 if setting.quick else REPEATS)
            spent = time.perf_counter() - start
        whole = {"milliseconds": f"{1000 * found['seconds']:.3g}", "step_bytes": f"{found['step_bytes']:.0f}"}
        return [{**self.keys, **machine(setting), **whole, "seconds": f"{spent:.0f}"}]


def machine(setting: Setting) -> Row:
    """What steps are measured on, as columns."""
    return {"device": pick_device(setting.device).type, "threads": str(setting.threads)}


def place(job: Job, setting: Setting, out: Path) -> Path:
    """The directory of a job: the same for all recipes that need this very work on these images."""
    start = re.sub(r"[^a-z0-9]+", "-", job.identity.lower()).strip("-")[:60].strip("-")
    return out / "jobs" / f"{start}-{digest([job.identity, setting.train, setting.quick])}"


def digest(words: object) -> str:
    return hashlib.blake2b(json.dumps(words, sort_keys=True).encode(), digest_size=4).hexdigest()


@contextmanager
def alone(directory: Path) -> Iterator[bool]:
    """Whether nobody else works there; a process that dies lets go."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / LOCK, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
