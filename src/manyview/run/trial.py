"""What a run will take: some steps are timed beforehand and thrown away, and the sizes of its files are added up."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from rich.console import Console

from manyview import distributed
from manyview.config import AnyConfig
from manyview.data import Loader, Source
from manyview.methods.base import Method
from manyview.run import pace
from manyview.run.adaptation import head_epochs
from manyview.run.build import Training, build
from manyview.run.choices import AS_ASKED
from manyview.run.duration import seconds
from manyview.run.log import busy
from manyview.train import NotFinite, train

WARM_UP, FEWEST, LIMIT = 2, 4, 2.0  # steps before the clock starts; steps and seconds that are timed
PATIENCE = 30.0  # seconds after which one timed step is enough: large networks take a minute for each without a GPU
SHARE, LONGEST_TRIAL = 0.05, 30.0  # of --time, for the steps that are timed; seconds
WORTH_A_TRIAL = 100  # steps: shorter runs are over before one would know
ENDLESS = 1_000_000_000  # steps, of a trial whose run has no end yet
MEASURING = "measuring how long a step takes"
END, END_VIEWS = 10.0, 16  # seconds for the last evaluation and the page, and views of each sample looked at for them


@dataclass(frozen=True)
class Trial:
    """Seconds of a run, as far as they can be told before it."""

    step: float
    view: float
    """One that is only looked at."""
    end: float
    """Evaluation and page."""

    def total(self, steps: int, looked_at: int) -> float:
        return self.step * steps + self.view * looked_at + self.end

    def steps_within(self, duration: float, looked_at: int = 0) -> int:
        """As many as fit, at least one."""
        return max(1, int((duration - self.total(0, looked_at)) / self.step))


def try_out(
    kind: type[Method], config: AnyConfig, source: Source, *, limit: float = LIMIT, patience: float = PATIENCE
) -> Trial:
    """Takes some steps of the run with networks that are thrown away. They are timed for `limit` seconds, and all of
    them take little more than `patience` seconds. All ranks call it, and get the same answer."""
    training = build(kind, config, source, looks=False)
    loader = Loader(
        source,
        batch_size=config.optim.batch_size,
        seed=config.run.seed,
        stop=training.steps,
        workers=config.data.workers,
        crop=training.augment.crop,
        rank=distributed.rank(),
        world=distributed.world_size(),
    )
    steps = train(
        training.method,
        loader,
        training.augment,
        training.optimizer,
        training.schedule,
        steps=training.steps,
        device=training.device,
        accumulate=config.optim.accumulate,
        precision=config.optim.precision,
        scaler=training.scaler,
    )
    # The readers have some batches ready before the first step, which makes as many steps faster than the others.
    warm = min(WARM_UP + 2 * loader.workers, training.steps - 1)
    first = began = time.perf_counter()
    spent, timed = 0.0, 0
    try:
        for taken in steps:
            taken.values.tolist()  # waits for the device
            now = time.perf_counter()
            slow = distributed.anyone(now - first > patience)
            if taken.step < warm and not slow:
                began = now
                continue
            timed, spent = timed + 1, now - began
            if slow or distributed.anyone(timed >= FEWEST and spent > limit):
                break
    except NotFinite:  # which the run itself will meet and explain
        timed, spent = timed + 1, time.perf_counter() - began
    del steps  # ends the readers
    step = agreed(spent / max(1, timed))
    view = pace.FORWARD * step / (config.optim.batch_size * kind.view_count(config.method)) * distributed.world_size()
    return Trial(step, view, END + END_VIEWS * min(pace.LOOKED_AT, len(source)) * view)


def agreed(number: float) -> float:
    """The same on all ranks."""
    return float(distributed.mean(torch.tensor(number, dtype=torch.float64)))


def planned(
    kind: type[Method], config: AnyConfig, source: Source, reasons: Mapping[str, str], began: float, console: Console
) -> tuple[AnyConfig, Trial | None]:
    """The configuration with as many steps as fit into --time, which counts from `began`; and what a trial showed,
    where the run is long enough to need one."""
    steps, per_epoch = pace.length(config, len(source))
    if config.run.time is None:
        if steps < WORTH_A_TRIAL:
            return config, None
        with busy(console, MEASURING):
            return config, try_out(kind, config, source)
    asked, duration = config.run.time, seconds(config.run.time)
    endless = replace(config, optim=replace(config.optim, max_steps=ENDLESS))
    limit = min(LONGEST_TRIAL, SHARE * duration)
    with busy(console, MEASURING):
        trial = try_out(kind, endless, source, limit=limit, patience=2 * limit)
    left = agreed(duration - (time.perf_counter() - began))
    paced = partial(_paced, config, reasons, per_epoch, kind.view_count(config.method), len(source))
    # What is looked at depends on the steps, and the steps on what is left of the time.
    config = paced(trial.steps_within(left))
    steps = trial.steps_within(left, pace.looked_at(config, config.optim.max_steps or 0, per_epoch, len(source)))
    if steps == 1 and trial.total(1, 0) > left:
        words = f"--time {asked} is too short for a step, the last evaluation and the page: one step is taken"
        console.print(words, style="yellow", soft_wrap=True)
    return paced(steps), trial


def _paced(
    config: AnyConfig, reasons: Mapping[str, str], per_epoch: int, views: int, samples: int, steps: int
) -> AnyConfig:
    """The configuration for so many steps, with those settings that follow them unless they were asked for."""
    own = {name for name, reason in reasons.items() if reason != AS_ASKED}
    run, optim = replace(config.run, time=None), replace(config.optim, max_steps=steps)  # the steps say it now
    for name in own & {"contrast_every", "knn_every"}:
        every: Any = getattr(pace, name)
        run = replace(run, **{name: every(steps, per_epoch, optim.batch_size * views, samples)})
    if "checkpoint_every" in own:
        run = replace(run, checkpoint_every=pace.saves_every(steps))
    if "warmup_head_epochs" in own:
        optim = replace(optim, warmup_head_epochs=head_epochs(steps, per_epoch))
    return replace(config, run=run, optim=optim)


def disk(config: AnyConfig, training: Training) -> int:
    """Bytes of the finished run: checkpoints, of which one more is there while the next is written, snapshots, encoder
    and logs."""
    state, encoder = size(training.method.state_dict().values()), size(training.method.encoder.state_dict().values())
    trained = size(each for each in training.method.parameters() if each.requires_grad)
    moments = 2 if config.optim.optimizer in ("adam", "adamw") else 1
    kept = min(config.run.keep, 2 + training.steps // config.run.checkpoint_every) + 1
    return (state + moments * trained) * kept + encoder * (2 + config.run.snapshots) + 1000 * training.steps


def size(tensors: Iterable[torch.Tensor]) -> int:
    """In bytes."""
    return sum(each.numel() * each.element_size() for each in tensors)
