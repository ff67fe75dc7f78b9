"""Runs the jobs of a recipe: finished ones are reused, a failed one does not lose the others."""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from manyview.atomic import locked
from manyview.errors import Stopped, UserError
from manyview.reproduce.job import Job, Store, place
from manyview.reproduce.recipe import Recipe
from manyview.reproduce.setting import Setting

FAILURE, TRACEBACK = "failure.txt", " (traceback in "
POLL = 5.0  # seconds between looks at what another process runs


@dataclass
class Outcome:
    """The recipe's jobs, as far as they are known, and how they stand."""

    jobs: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # reason by job, in words
    elsewhere: list[Job] = field(default_factory=list)  # run by another process

    @property
    def waiting(self) -> list[Job]:
        return [job for job in self.jobs if job.waits_for]

    @property
    def whole(self) -> bool:
        return len(self.done) == len(self.jobs)

    @property
    def left(self) -> list[Job]:
        """What this process can start."""
        others = [*self.done, *self.elsewhere, *self.waiting]
        return [job for job in self.jobs if job not in others and str(job) not in self.failed]


def carry_out(recipe: Recipe, setting: Setting, out: Path, store: Store, console: Console) -> Outcome:
    """All that can be done; what was done before is not done again."""
    outcome, clock, said = Outcome(), Clock(trusted=setting.as_planned), ""
    while True:
        outcome.jobs = recipe.jobs(setting, store)  # anew each time: some are known only when others are done
        outcome.done = done_of(outcome.jobs, recipe, store)
        outcome.elsewhere = [job for job in outcome.elsewhere if job not in outcome.done]
        if not (left := outcome.left):
            if recipe.jobs(setting, store) != outcome.jobs:
                continue  # another process has just ended what some waited for
            if not outcome.elsewhere or not outcome.waiting:
                return outcome
            words = f"waiting for another process, which runs: {'; '.join(map(str, outcome.elsewhere))}"
            if words != said:
                console.print(words, highlight=False, soft_wrap=True)
            said = words
            time.sleep(POLL)
            outcome.elsewhere.clear()  # done by now, still running, or given up
            continue
        job = left[0]
        directory = place(job, setting, out)
        with locked(directory, wait=False) as mine:
            if not mine:
                outcome.elsewhere.append(job)
            elif not store.rows_of(job):  # else another process ended it in between
                number = f"run {len(outcome.done) + len(outcome.failed) + 1} of {len(outcome.jobs)}"
                console.print(f"{number}: {job}  ({clock.left([*left, *outcome.waiting])})", highlight=False)
                untouched, start = not directory.exists(), time.perf_counter()
                succeeded = perform(recipe, job, directory, setting, store, outcome, console)
                if untouched and succeeded:
                    clock.count(job, time.perf_counter() - start)


def done_of(jobs: list[Job], recipe: Recipe, store: Store) -> list[Job]:
    """Those whose rows are known, be it from another recipe."""
    known = [job for job in jobs if not job.waits_for]
    return [job for job in known if store.rows_of(job) or store.adopt(job, recipe.columns(job.table))]


def perform(
    recipe: Recipe, job: Job, directory: Path, setting: Setting, store: Store, outcome: Outcome, console: Console
) -> bool:
    """One job, and whether it succeeded; an error in it is written to a file and does not stop the others."""
    directory.mkdir(parents=True, exist_ok=True)
    reason = directory / FAILURE
    reason.unlink(missing_ok=True)
    try:
        with chatter(directory, console) as inner:
            rows = job.perform(directory, setting, inner)
        store.add(job, recipe.columns(job.table), rows)
        if not store.rows_of(job):
            raise RuntimeError(f"{recipe.name} measured nothing that its results have columns for")
    except Stopped:
        raise
    except Exception as error:
        plain = isinstance(error, UserError)
        words = str(error) if plain else f"{type(error).__name__}: {error}{TRACEBACK}{reason})"
        reason.write_text(f"{error}\n" if plain else traceback.format_exc(), encoding="utf-8")
        outcome.failed[str(job)] = words
        console.print(f"  failed: {words}", highlight=False, soft_wrap=True, markup=False)
        return False
    found = ", ".join(f"{name} {value}" for name, value in rows[-1].items() if name not in job.keys)
    console.print(f"  done: {found}", highlight=False, soft_wrap=True)
    return True


@contextmanager
def chatter(directory: Path, console: Console) -> Iterator[Console]:
    """Where a run's own lines and bars go: to a terminal, else to a file beside the run."""
    if console.is_terminal:
        yield console
        return
    with open(directory / "log.txt", "a", encoding="utf-8") as file:
        yield Console(file=file, width=120, markup=False, emoji=False)


class Clock:
    """How long the rest will take, judged by how this machine has done so far."""

    def __init__(self, *, trusted: bool) -> None:
        """`trusted` are expectations that are meant for such runs, at least before there is anything better."""
        self.trusted, self.expected, self.spent = trusted, 0.0, 0.0

    def count(self, job: Job, seconds: float) -> None:
        """Only jobs that ran from their start to their end tell how fast this machine is."""
        self.spent += seconds
        self.expected += job.seconds

    def left(self, jobs: list[Job]) -> str:
        if not self.expected and not self.trusted:
            return "time to go not known yet"
        pace = self.spent / self.expected if self.expected else 1.0
        return f"about {duration(pace * sum(job.seconds for job in jobs))} to go"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
