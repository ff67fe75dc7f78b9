"""The work of a recipe and its results. A job, a pre-training or a measured step, depends on no other, survives an
interruption and is never done twice. Its rows are in small CSV files that can be read, committed and added to; beside
them `settings.json` holds the resolved settings that rows came from, by their digest, which is in the rows.
"""

import csv
import hashlib
import io
import json
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from manyview.atomic import locked, replacing
from manyview.cost.point import config_of, measured
from manyview.diagnose.facts import read_facts
from manyview.errors import UserError
from manyview.methods import find
from manyview.reproduce.resolved import Resolved, described, differing, of_config, of_fields, resolve
from manyview.reproduce.setting import ON_SCENES, Setting
from manyview.run.build import build_augment
from manyview.run.device import pick_device
from manyview.run.files import CHECKPOINTS, finished, kept
from manyview.run.flags import open_training, parse_run
from manyview.run.pretrain import pretrain, report, resume
from manyview.run.saved import saved_config

IMAGES, RUN = "images", "run"  # columns that recipes do not see: of which images a row is, and of which settings
SETTINGS = "settings.json"
REPEATS, ONE_AT_A_TIME = 5, "weighing"

Row = dict[str, str]  # a line of a file of results, by column


class Look(Protocol):
    """Something that is measured on a finished run: one row, or the many of a curve. A dataclass of its settings."""

    @property
    def name(self) -> str: ...

    def __call__(self, run: Path, setting: Setting) -> list[Row]: ...


@dataclass(frozen=True)
class Job(ABC):
    """`perform` does the work, or what is left of it, in a directory of its own."""

    keys: Mapping[str, str]  # the columns that tell its rows from those of other jobs
    table: str = field(default="", kw_only=True)
    """Which of the recipe's files of results it belongs to; most recipes have one, without a name."""
    waits_for: str = field(default="", kw_only=True)  # what must be known before it can be started; empty when it is
    seconds: float = field(default=15.0, kw_only=True)  # expected on two cores

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
        spent, fresh = read_facts(run).seconds or 0.0, False
        for look in self.looks:
            path = directory / "looks" / f"{look.name}-{digest([repr(look)])}.json"
            if not path.exists():  # else another recipe has looked already
                start, fresh = time.perf_counter(), True
                seen = {"rows": look(run, setting), "seconds": round(time.perf_counter() - start, 3)}
                with replacing(path) as file:
                    file.write(json.dumps(seen).encode())
            kept = json.loads(path.read_text(encoding="utf-8"))
            found = [{**row, **more} for row in found for more in kept["rows"]]
            spent += kept["seconds"]
        if fresh:  # its page was written at the end of the training, without the evaluations
            method, config = saved_config(run)
            report(run, open_training(method, config), build_augment(method, config), console)
        return [{**row, "seconds": f"{spent:.0f}"} for row in found]

    def carry_on(self, run: Path, setting: Setting, console: Console) -> None:
        """Starts the run, resumes it where it was interrupted, or leaves it alone when it is done."""
        done = finished(run)
        if not done and not kept(run / CHECKPOINTS):
            shutil.rmtree(run, ignore_errors=True)  # it ended before its first checkpoint
            method = find(self.words[0])
            own = ["--data", setting.train, "--out", str(run), "--device", setting.device]
            config, source, weights, _ = parse_run(method, [*self.words[1:], *own, "--workers", str(setting.workers)])
            pretrain(method, config, source, console, weights=weights)
            return
        method, config = saved_config(run)
        stored = {name: value for name, (value, _) in of_config(method.name, config).items()}
        if setting.images and (others := differing(stored, self.trained(setting.images))):
            raise UserError(f"{run} was made with other settings ({others}): move it away")
        if not done:
            resume(run, method, config, open_training(method, config), console)


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
        with locked(directory.parent / ONE_AT_A_TIME):  # processes may share a recipe, but not the cores that are timed
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


@dataclass(frozen=True)
class Store:
    """The files of one recipe: DIRECTORY/NAME.csv, and NAME-TABLE.csv where there are several."""

    directory: Path
    name: str
    suffix: str = ""
    images: str | None = None
    """Those that its rows are of, as 50000/10/32: samples, classes and side. None where steps are measured without
    any; then there is no such column."""

    def path(self, table: str = "") -> Path:
        return self.directory / f"{self.name}{'-' if table else ''}{table}{self.suffix}.csv"

    def rows(self, table: str = "") -> list[Row]:
        """Those of its images, as the recipe knows them."""
        return [known(row) for row in self._of_images(self.path(table))]

    def sets(self, table: str = "") -> list[str]:
        """The sets of images that the file has rows of."""
        return list(dict.fromkeys(row[IMAGES] for row in self._all(self.path(table))))

    def rows_of(self, job: Job) -> list[Row]:
        """None where the settings are no longer those that the rows came from."""
        return [row for row, others in self._compared(job) if not others]

    def outdated(self, jobs: Sequence[Job]) -> list[str]:
        """For each row that has the keys of one of the jobs and came from other settings: what differs."""
        return [others for job in jobs if not job.waits_for for _, others in self._compared(job) if others]

    def add(self, job: Job, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Unless another process has done so; several may share the work."""
        with locked(self.directory / SETTINGS):
            if self.rows_of(job):
                return
            settings = {name: value for name, (value, _) in job.settings(self.images).items()}
            path, mine = self.path(job.table), {RUN: digest(settings)}
            mine |= {} if self.images is None else {IMAGES: self.images}
            everything = [*self._all(path), *({**row, **mine} for row in rows)]
            stored = self._settings() | {mine[RUN]: settings}
            lines = [f'"{name}": {json.dumps(stored[name], ensure_ascii=False)}' for name in sorted(stored)]
            with replacing(self.directory / SETTINGS) as file:  # first, as a row without its settings would not count
                file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())
            with replacing(path) as file:
                file.write(to_csv((*columns, *mine), everything).encode())

    def adopt(self, job: Job, columns: Sequence[str]) -> bool:
        """Whether another recipe did the same work and looked at it in the same way: then its rows are these too."""
        if self.images is None:
            return False  # steps are measured on other machines, and at other times
        same = {run for run, others in self._others(job).items() if not others}
        measured = {name for name in columns if name not in job.keys}
        for path in sorted(self.directory.glob("*.csv")):
            if path.stem.endswith(ON_SCENES) != self.suffix.endswith(ON_SCENES):
                continue  # as many images of as many classes are not the same ones
            rows: list[Row] = []
            with suppress(UserError, OSError, ValueError, csv.Error):  # a file of somebody else, maybe damaged
                rows = [row for row in self._of_images(path) if row[RUN] in same]
            rows = [row for row in rows if row.get("seed") == job.keys.get("seed")]
            if rows and rows[0].keys() >= measured:
                keys = {name: value for name, value in rows[0].items() if name not in measured}
                alike = [row for row in rows if row.items() >= keys.items()]  # of one job, where several are alike
                self.add(job, columns, [{**job.keys, **{name: row[name] for name in measured}} for row in alike])
                return True
        return False

    def check(self, table: str, columns: Sequence[str]) -> None:
        """Raises a `UserError` where a file has other columns than its recipe has now."""
        rows = self._all(self.path(table))
        mine = [*columns, RUN, *([] if self.images is None else [IMAGES])]
        if rows and list(rows[0]) != mine:
            raise UserError(
                f"{self.path(table)} has the columns {', '.join(rows[0])}, and the recipe now has {', '.join(mine)}: "
                "move it away"
            )

    def _compared(self, job: Job) -> list[tuple[Row, str]]:
        """The rows that have the keys of the job, each with what parts its settings from today's."""
        rows = [row for row in self._of_images(self.path(job.table)) if row.items() >= job.keys.items()]
        others = self._others(job) if rows else {}
        return [(known(row), others.get(row[RUN], "settings unknown")) for row in rows]

    def _others(self, job: Job) -> dict[str, str]:
        """What parts stored settings, by their digest, from those of the job; empty where nothing does."""
        stored = self._settings()
        today = job.settings(self.images) if stored else {}
        return {run: differing(settings, today) for run, settings in stored.items()}

    def _settings(self) -> dict[str, dict[str, Any]]:
        path = self.directory / SETTINGS
        try:
            found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}): restore it, rows do not count without it") from error
        return found

    def _of_images(self, path: Path) -> list[Row]:
        rows = self._all(path)
        return rows if self.images is None else [row for row in rows if row[IMAGES] == self.images]

    def _all(self, path: Path) -> list[Row]:
        if not path.exists():
            return []
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        for column in (RUN,) if self.images is None else (RUN, IMAGES):
            if column not in (reader.fieldnames or ()):
                raise UserError(
                    f"{path} has no column {column!r}, without which its rows cannot be told from others: move it away"
                )
        for number, row in enumerate(rows, 2):
            if None in row or None in row.values():
                raise UserError(f"{path} is damaged in line {number}: mend or remove the line")
        return rows


def known(row: Row) -> Row:
    """What a recipe sees of it."""
    return {name: value for name, value in row.items() if name not in (IMAGES, RUN)}


def to_csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
