"""Logs each step: to metrics.jsonl, to loggers, and to a progress bar or plain lines."""

import json
import os
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from manyview.atomic import replacing
from manyview.run.files import METRICS
from manyview.run.loggers import Logger


class Log:
    """Every step is logged exactly once, also after a resume: lines from step `start` on are removed first."""

    def __init__(
        self, run: Path, console: Console, loggers: Sequence[Logger], *, start: int, steps: int, every: int
    ) -> None:
        self.console, self.start, self.steps, self.every = console, start, steps, every
        path = run / METRICS
        _truncate(path, start)
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed in __exit__
        self.loggers = loggers
        self.progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TextColumn("eta"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "Log":
        self.began = time.perf_counter()
        self.task = self.progress.add_task("pretrain", total=self.steps, completed=self.start, text="")
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()
        self.flush()
        self.file.close()
        if kind is not None:
            for logger in self.loggers:
                logger.close("interrupted")

    def publish(self, page: Path) -> None:
        """After the last step, when there is a page: loggers get it, and are closed."""
        for logger in self.loggers:
            logger.page(page)
            logger.close("finished")

    def write(self, step: int, metrics: dict[str, float]) -> None:
        self.file.write(json.dumps({"step": step, **metrics}) + "\n")
        for logger in self.loggers:
            logger.write(step, metrics)
        text = (
            f"loss {metrics['loss']:.3f}  lr {metrics['lr']:.3g}  "
            f"{metrics['images_per_s']:.0f} images/s  waiting {metrics['wait']:.0%}"
        )
        if "knn" in metrics:
            self.console.print(f"step {step + 1}: kNN accuracy {metrics['knn']:.1%}")
        self.progress.update(self.task, completed=step + 1, text=text)
        done = step + 1
        if not self.console.is_terminal and (done % self.every == 0 or done == self.steps):
            left = (time.perf_counter() - self.began) / (done - self.start) * (self.steps - done)
            self.console.print(f"step {done}/{self.steps}  {text}  eta {left:.0f} s", soft_wrap=True)

    def write_broken(self, step: int, samples: list[int]) -> None:
        """The step whose loss was no finite number, which JSON cannot write: those who look later see where it was."""
        self.file.write(json.dumps({"step": step, "loss": None, "samples": samples}) + "\n")

    def flush(self) -> None:
        """Called before a checkpoint, which relies on these lines."""
        self.file.flush()
        os.fsync(self.file.fileno())


def _truncate(path: Path, start: int) -> None:
    """Keeps the lines of the steps before `start`. A half-written last line belongs to a later step."""
    if not path.exists():
        return
    with open(path, "rb") as old, replacing(path) as new:
        new.writelines(islice(old, start))
