"""A pre-training and what is looked at when it is done."""

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console

from manyview.atomic import replacing
from manyview.diagnose.facts import read_facts
from manyview.methods import find
from manyview.reproduce.job import Job, Row, digest
from manyview.reproduce.setting import Setting
from manyview.run import checkpoint
from manyview.run.build import build_augment
from manyview.run.files import CHECKPOINTS, ENCODER, PAGE
from manyview.run.flags import open_training, parse_run
from manyview.run.pretrain import pretrain, report, resume
from manyview.run.saved import saved_config

__all__ = ["WATCH_AT_END", "Look", "Training"]

WATCH_AT_END = ("--contrast-every", "10000")  # epochs; the last step is always measured, enough for the diagnosis


class Look(Protocol):
    """Something that is measured on a finished run: one row, or the many of a curve. A dataclass: its `repr` tells how
    it looks."""

    @property
    def name(self) -> str: ...

    def __call__(self, run: Path, setting: Setting) -> list[Row]: ...


@dataclass(frozen=True)
class Training(Job):
    words: tuple[str, ...] = field(kw_only=True)
    """What follows `manyview pretrain`, but for the images and the directory."""
    looks: tuple[Look, ...] = field(kw_only=True)
    seconds: float = field(kw_only=True)

    @property
    def identity(self) -> str:
        return " ".join(self.words)

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(map(repr, self.looks))

    @property
    def expected_seconds(self) -> float:
        return self.seconds

    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        run = directory / "run"
        carry_on(self.words, run, setting, console)
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


def carry_on(words: tuple[str, ...], run: Path, setting: Setting, console: Console) -> None:
    """Starts the run, goes on with it where it was interrupted, or leaves it alone when it is done."""
    if all((run / name).exists() for name in (ENCODER, PAGE)):
        return
    if checkpoint.kept(run / CHECKPOINTS):
        method, config = saved_config(run)
        resume(run, method, config, open_training(method, config), console)
        return
    shutil.rmtree(run, ignore_errors=True)  # it ended before there was anything to go on from
    method = find(words[0])
    own = ["--data", setting.train, "--out", str(run), "--device", setting.device, "--workers", str(setting.workers)]
    config, source = parse_run(method, [*words[1:], *own])
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
