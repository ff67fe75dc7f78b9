"""Races of training steps: ours as `manyview pretrain` takes them, lightly's parts as its MoCo example wires them."""

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import torch

from bench.lines import (
    KEPT_MEMORY,
    STEP_OVERHEAD,
    STEP_OVERHEAD_VIEWS,
    TRAIN_JCL,
    TRAIN_MOCO,
    TRAINING,
    TRAINING_PASSIVE,
    Line,
)
from bench.race import Race, Side
from bench.remote import Remote
from bench.steps import BATCH, KEYS, SIZE, bare_loop
from manyview.allocator import keep_freed_memory
from manyview.cost.steps import QUEUE, Ready, Steps, augmentation, endless, loop, method_of
from manyview.data import Loader, open_source
from manyview.views import policy

THREADS = 2
# Two workers have up to four batches in hand. Before the clock starts they get ahead as far as they can; after it stops
# what they still make is used up, so that they are idle in the others' turns.
AHEAD = 4
OUR_WARM_UP = 2  # steps


def races(quick: bool) -> Iterator[Race]:
    with ExitStack() as processes:
        yield end_to_end(quick, processes)
    yield overhead(quick)


def end_to_end(quick: bool, processes: ExitStack) -> Race:
    """Every side in a process of its own, with the wait policy that a user has who sets none. lightly is given a second
    turn with the one that suits it: threads that spin while they wait rob its workers of the cores."""
    steps, batch = (1, 16) if quick else (5, BATCH)
    size = {"steps": steps, "batch": batch}
    made: dict[str, tuple[str, dict[str, Any], str]] = {
        TRAIN_MOCO.ours: ("ours", {"name": "moco-v2", **size}, "DEFAULT"),
        TRAIN_JCL.ours: ("ours", {"name": "jcl", "keys": KEYS, **size}, "DEFAULT"),
        KEPT_MEMORY.theirs: ("ours", {"name": "jcl", "keys": KEYS, "keep": False, **size}, "DEFAULT"),
    }
    wirings = ((2, False), (2, True), (1 + KEYS, False), (1 + KEYS, True))  # of the lines but the last
    for lines, wait in ((TRAINING, "DEFAULT"), (TRAINING_PASSIVE, "PASSIVE")):
        for line, (views, channels_last) in zip(lines[:-1], wirings, strict=True):
            made[line.theirs] = ("lightly", {"views": views, "channels_last": channels_last, **size}, wait)
    sides: dict[str, Side] = {
        name: processes.enter_context(closing(Remote(__name__, maker, settings, threads=THREADS, wait_policy=wait)))
        for name, (maker, settings, wait) in made.items()
    }
    facts = {
        "batch": batch,
        "queue": QUEUE,
        "steps_per_repeat": steps,
        "images": "scenes",
        "wait_policies": {name: wait for name, (_, _, wait) in made.items()},
    }
    repeats = 1 if quick else 5
    lines = making((*TRAINING, *TRAINING_PASSIVE, KEPT_MEMORY), batch * steps)
    return Race(sides, lines, THREADS, repeats=repeats, facts=facts)


def making(lines: Sequence[Line], images: int) -> tuple[Line, ...]:
    return tuple(line.making(images) for line in lines)


def ours(*, name: str, steps: int, batch: int, keep: bool = True, **settings: Any) -> Side:
    if keep:  # as the command line does
        keep_freed_memory()
    method = method_of(name, **settings)
    loader = Loader(open_source("scenes"), batch_size=batch, seed=0, stop=1_000_000)
    return stretch(loop(method, loader, augmentation(method.view_count(method.config), SIZE)), steps)


def lightly(*, views: int, channels_last: bool, steps: int, batch: int) -> Side:
    # Imported only now: the overhead is measured without the peers.
    from bench.peers import LightlyMoCo, lightly_loader, lightly_views

    source = open_source("scenes")
    transform = lightly_views(policy("moco-v2"), views=views, size=SIZE)
    images = source.batch(torch.arange(len(source)))["image"]
    loader = lightly_loader(images, transform, batch=batch, batches=AHEAD + steps + AHEAD)
    model = LightlyMoCo(channels_last=channels_last)

    def side() -> float:
        moments = []
        for made, _ in loader:
            model.step(made)
            moments.append(time.perf_counter())
        return moments[AHEAD + steps - 1] - moments[AHEAD - 1]

    return side


def stretch(endless_steps: Steps, steps: int) -> Side:
    """Times so many steps after a few, and goes on from there the next time."""

    def side() -> float:
        advance(endless_steps, OUR_WARM_UP)
        start = time.perf_counter()
        advance(endless_steps, steps)
        return time.perf_counter() - start

    return side


def advance(steps: Steps, count: int) -> None:
    for _ in itertools.islice(steps, count):
        pass


def overhead(quick: bool) -> Race:
    steps, batch = (1, 16) if quick else (4, BATCH)
    images = open_source("scenes").batch(torch.arange(batch))["image"]
    augment = augmentation(1 + KEYS, SIZE)
    ready = Ready(augment, images)
    sides = {
        STEP_OVERHEAD.ours: stretch(loop(method_of("jcl", keys=KEYS), endless(images), ready), steps),
        STEP_OVERHEAD_VIEWS.ours: stretch(loop(method_of("jcl", keys=KEYS), endless(images), augment), steps),
        STEP_OVERHEAD.theirs: stretch(bare_loop(ready.made), steps),
    }
    lines = making((STEP_OVERHEAD, STEP_OVERHEAD_VIEWS), batch * steps)
    facts = {"batch": batch, "queue": QUEUE, "steps_per_repeat": steps}
    return Race(sides, lines, THREADS, repeats=3 if quick else 7, facts=facts)
