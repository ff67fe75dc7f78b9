"""What a run will take: some steps are timed beforehand and thrown away, and the sizes of its files are added up."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from manyview import distributed
from manyview.config import AnyConfig, RunConfig
from manyview.data import Loader, Source
from manyview.methods.base import Method
from manyview.run.auto import LOOKED_AT, looks_every, saves_every
from manyview.run.build import Training, build
from manyview.run.choices import AS_ASKED
from manyview.run.duration import seconds
from manyview.train import NotFinite, train

WARM_UP, FEWEST, LIMIT = 2, 4, 2.0  # steps before the clock starts; steps and seconds that are timed
SHARE, LONGEST_TRIAL = 0.05, 30.0  # of --time, for the trial; seconds
WORTH_A_TRIAL = 100  # steps: shorter runs are over before one would know
ENDLESS = 1_000_000_000  # steps, of a trial whose run has no end yet
FORWARD = 1 / 3  # of the time of a view that is trained on, for one that is only looked at
END, END_VIEWS = 10.0, 8192  # seconds for the last evaluation and the page, and views that are looked at for them


@dataclass(frozen=True)
class Trial:
    """Seconds of a run, as far as they can be told before it."""

    step: float
    view: float
    """One that is only looked at."""
    end: float
    """Evaluation and page."""

    def total(self, steps: int, looks: int) -> float:
        return self.step * steps + self.view * LOOKED_AT * looks + self.end

    def steps_within(self, duration: float, looks: int = 0) -> int:
        """As many as fit, at least one."""
        return max(1, int((duration - self.total(0, looks)) / self.step))


def try_out(kind: type[Method], config: AnyConfig, source: Source, *, limit: float = LIMIT) -> Trial:
    """Takes some steps of the run with networks that are thrown away, for `limit` seconds and not much longer. All
    ranks call it, and get the same answer."""
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
    began, spent, timed = time.perf_counter(), 0.0, 0
    with suppress(NotFinite):  # which the run itself will meet and explain
        for taken in steps:
            taken.values.tolist()  # waits for the device
            if taken.step < warm:
                began = time.perf_counter()
                continue
            timed, spent = timed + 1, time.perf_counter() - began
            if distributed.anyone(timed >= FEWEST and spent > limit):
                break
    del steps  # ends the readers
    step = agreed(spent / max(1, timed))
    view = FORWARD * step / (config.optim.batch_size * kind.view_count(config.method)) * distributed.world_size()
    return Trial(step, view, END + END_VIEWS * view)


def agreed(number: float) -> float:
    """The same on all ranks."""
    return float(distributed.mean(torch.tensor(number, dtype=torch.float64)))


def planned(
    kind: type[Method], config: AnyConfig, source: Source, reasons: Mapping[str, str], began: float
) -> tuple[AnyConfig, Trial | None]:
    """The configuration with as many steps as fit into --time, which counts from `began`; and what a trial showed,
    where the run is long enough to need one."""
    per_epoch = max(1, len(source) // config.optim.batch_size)
    if config.run.time is None:
        steps = config.optim.max_steps or config.optim.epochs * per_epoch
        return config, try_out(kind, config, source) if steps >= WORTH_A_TRIAL else None
    duration = seconds(config.run.time)
    endless = replace(config, optim=replace(config.optim, max_steps=ENDLESS))
    trial = try_out(kind, endless, source, limit=min(LONGEST_TRIAL, SHARE * duration))
    left = agreed(duration - (time.perf_counter() - began))
    steps = trial.steps_within(left)
    run = config.run
    if reasons.get("contrast_every", AS_ASKED) != AS_ASKED:
        views = config.optim.batch_size * kind.view_count(config.method)
        run = replace(run, contrast_every=looks_every(steps, per_epoch, views, len(source)))
    if reasons.get("checkpoint_every", AS_ASKED) != AS_ASKED:
        run = replace(run, checkpoint_every=saves_every(steps))
    steps = trial.steps_within(left, looks(run, steps, per_epoch))
    run = replace(run, time=None)  # the steps say it now
    return replace(config, run=run, optim=replace(config.optim, max_steps=steps)), trial


def looks(run: RunConfig, steps: int, per_epoch: int) -> int:
    """How often contrast is measured."""
    return -(-steps // (per_epoch * run.contrast_every)) if run.contrast_every else 0


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
