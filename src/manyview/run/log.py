"""Logs each step: to metrics.jsonl, to loggers, and to a progress bar or plain lines."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from manyview.atomic import replacing
from manyview.data.source import SILENCE
from manyview.run.duration import on_a_clock
from manyview.run.files import METRICS
from manyview.run.loggers import Logger
from manyview.run.remaining import Remaining


@contextmanager
def busy(console: Console, text: str) -> Iterator[None]:
    """Tells what takes a while: on a terminal as long as it lasts, in a log by a line."""
    if console.is_terminal:
        with console.status(Text(text)):
            yield
    else:
        console.print(f"{text} …", soft_wrap=True)
        yield


class Log:
    """Every step is logged exactly once, also after a resume: lines from step `start` on are removed first."""

    def __init__(
        self,
        run: Path,
        console: Console,
        loggers: Sequence[Logger],
        *,
        start: int,
        steps: int,
        every: int,
        batch_size: int,
        pauses: Mapping[str, int],
        silence: float = SILENCE,
    ) -> None:
        """`pauses`: after how many steps something else than steps takes time, by what it is."""
        self.console, self.steps, self.every, self.batch_size = console, steps, every, batch_size
        self.done, self.text, self.told, self.silence = start, "no step yet", time.perf_counter(), silence
        self.remaining, self.ended = Remaining(steps, start, pauses), threading.Event()
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
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "Log":
        self.task = self.progress.add_task("pretrain", total=self.steps, completed=self.done, text=self.text, left="")
        self.progress.start()
        if not self.console.is_terminal:
            threading.Thread(target=self.break_silence, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.ended.set()
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
        loss, speed = f"loss {metrics['loss']:.3f}", f"{metrics['images_per_s']:.0f} images/s"
        speed += f"  waiting {metrics['wait']:.0%}"
        self.done, self.text = step + 1, f"{loss}  lr {metrics['lr']:.3g}  {speed}"
        if "knn" in metrics:
            self.console.print(f"step {step + 1}: kNN accuracy {metrics['knn']:.1%}")
        self.remaining.step(self.done, self.batch_size / metrics["images_per_s"])
        self.progress.update(self.task, completed=self.done, text=f"{loss}  {speed}", left=self.left)
        if not self.console.is_terminal and (self.done % self.every == 0 or self.done == self.steps):
            self.print_line()

    @property
    def left(self) -> str:
        seconds = self.remaining.seconds
        return "" if seconds is None else f"eta {on_a_clock(seconds)}"

    def print_line(self) -> None:
        self.told = time.perf_counter()
        self.console.print(f"step {self.done}/{self.steps}  {self.text}  {self.left}".rstrip(), soft_wrap=True)

    def break_silence(self) -> None:
        """A line at least every 30 s, whatever a run is busy with: a log that is silent looks as if it had died."""
        while not self.ended.wait(max(0.01, self.told + self.silence - time.perf_counter())):
            if time.perf_counter() - self.told >= self.silence:
                self.print_line()

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
