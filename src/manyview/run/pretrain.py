"""A whole run: training, logs, checkpoints, snapshots, the encoder and the report."""

import copy
import json
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from rich.console import Console

import manyview
from manyview import distributed
from manyview.atomic import replacing
from manyview.config import AnyConfig, plain
from manyview.data import Loader, Source
from manyview.diagnose.facts import LOOKS
from manyview.diagnose.monitor import ContrastMonitor
from manyview.encoders import FrozenEncoder, Weights, load, random_like
from manyview.encoders.files import card_as_text, write
from manyview.errors import Stopped, UserError
from manyview.evaluate.knn import knn_accuracy
from manyview.methods.base import Method
from manyview.report import beside, collect, write_report
from manyview.run import checkpoint, snapshots
from manyview.run.announce import announce, environment
from manyview.run.build import Training, build
from manyview.run.files import CHECKPOINTS, CONFIG, ENCODER, METRICS, START, UNREADABLE, fingerprint, kept, read_config
from manyview.run.log import Log, busy
from manyview.run.loggers import open_loggers
from manyview.run.place import clear, place_for
from manyview.run.saved import read_settings, saved_config
from manyview.run.signals import deferred_signals
from manyview.run.start import told, watch
from manyview.run.trial import planned
from manyview.run.unreadable import UnreadableList
from manyview.train import NotFinite, Taken, read, train
from manyview.views import Augment

# These may change when a run is resumed: they decide where and how fast it runs, not what it computes.
FREE = {
    *("out", "config", "preset", "time", "dry_run", "device", "compile", "checkpoint_every", "keep", "log_every"),
    "log_to",
    *("data", "workers", "threads"),
}

WHOLE = "shuffled as a whole"


def pretrain(
    kind: type[Method],
    config: AnyConfig,
    source: Source,
    console: Console,
    *,
    weights: Weights | None = None,
    reasons: Mapping[str, str] = MappingProxyType({}),
    began: float | None = None,
) -> Path | None:
    """Trains in a new directory to the end, from `weights` if there are any. A run that `torchrun` restarts continues.
    A dry run ends before it writes anything. `reasons` are told beside the settings, --time counts from `began`."""
    run = config.run.out
    writes = distributed.rank() == 0
    ours = place_for(run)
    if ours and distributed.anyone(writes and bool(kept(run / CHECKPOINTS))):
        if config.run.time is not None:  # for which the first start has fixed the steps
            _, config = saved_config(run)
        return resume(run, kind, config, source, console)
    # All that can fail comes before anything is written: a wrong flag leaves nothing behind.
    asked = config.run.time
    began = time.perf_counter() if began is None else began
    config, trial = planned(kind, config, source, reasons, began, console)
    training = build(kind, config, source, weights=weights)
    if config.run.dry_run:
        announce(kind, config, source, training, console, reasons, trial)
        return None
    if writes:
        facts = {
            "method": kind.name,
            "version": manyview.__version__,
            "preset": config.run.preset,
            "time": None if trial is None else {"asked": asked, "seconds_per_step": trial.step},
            "launch": distributed.launch(),
            "config": plain(config),
            "data": source.describe(),
            "contrast": None if training.contrast is None else training.contrast.describe(),
            "start": None if weights is None else begin(weights, config, training, console),
            "environment": environment(training.device),
        }
        clear(run)
        with replacing(run / CONFIG) as file:
            file.write(json.dumps(facts, indent=2).encode() + b"\n")
        announce(kind, config, source, training, console, reasons, trial)
        if config.run.snapshots:
            snapshots.save(run, 0, training.method.encoder)
        if weights is not None:
            write(run / START, training.method.encoder.backbone.state_dict(), training.card)
        save(run, config, training, step=0)
    return finish(run, config, source, training, start=0, console=console)


def resume(run: Path, kind: type[Method], config: AnyConfig, source: Source, console: Console) -> Path:
    """Continues an interrupted run exactly from its last checkpoint."""
    path = checkpoint.latest(run / CHECKPOINTS)
    state = checkpoint.load(path)
    # First, because the configuration also chooses samples.
    refuse_other(saved_with(state, kind, path), config, path)
    maker, here = read_config(run).get("version"), manyview.__version__
    refuse_other_order(run, source)
    if source.fingerprint != (expected := fingerprint(run, "data")):
        older = "" if maker == here else f", or resume with manyview {maker}, which made the run"
        raise UserError(
            f"--data {config.data.data} is not what {run} was trained on (fingerprint {source.fingerprint} instead of "
            f"{expected}): name the original data{older}"
        )
    training = build(kind, config, source)
    refuse_other_contrast(run, training.contrast)
    try:
        training.method.load_state_dict(state["method"])
        training.optimizer.load_state_dict(state["optimizer"])
        training.scaler.load_state_dict(state["scaler"])
        start = int(state["step"])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        way_out = "remove it and resume from an older one" if maker == here else f"resume it with manyview {maker}"
        raise UserError(
            f"checkpoint {path} does not fit {kind.name} (manyview {maker} wrote it, this is {here}): {way_out}"
        ) from error
    console.print(f"resuming {run} at step {start} of {training.steps}", soft_wrap=True)
    return finish(run, config, source, training, start=start, console=console)


def finish(run: Path, config: AnyConfig, source: Source, training: Training, *, start: int, console: Console) -> Path:
    """Runs the remaining steps, then writes the encoder and the report."""
    writes = distributed.rank() == 0
    wanted = snapshots.due(training.steps, config.run.snapshots)
    loader = Loader(
        source,
        batch_size=config.optim.batch_size,
        seed=config.run.seed,
        start=start,
        stop=training.steps,
        workers=config.data.workers,
        crop=training.augment.crop,
        rank=distributed.rank(),
        world=distributed.world_size(),
    )
    waits = waits_for(training.device)
    unreadable = UnreadableList(source, run / UNREADABLE)
    warn = watch(run, config, training) if writes else None  # only rank 0 knows when config.json is there
    with ExitStack() as stack:
        pending = stack.enter_context(deferred_signals())  # first, so that the log is closed before signals act again
        log: Log | None = None
        if writes:
            tell = partial(console.print, style="yellow", soft_wrap=True)
            loggers = open_loggers(config.run.log_to, run, logged(run), start, tell)
            log = Log(
                run,
                console,
                loggers,
                start=start,
                steps=training.steps,
                every=config.run.log_every,
                batch_size=config.optim.batch_size,
                pauses=pauses(config, training),
            )
            stack.enter_context(log)
        steps = train(
            training.method,
            loader,
            training.augment,
            training.optimizer,
            training.schedule,
            steps=training.steps,
            device=training.device,
            clip_grad=config.optim.clip_grad,
            accumulate=config.optim.accumulate,
            head_steps=round(config.optim.warmup_head_epochs * training.steps_per_epoch),
            precision=config.optim.precision,
            scaler=training.scaler,
            stop=lambda: bool(pending),
            wait=waits,
        )
        unread: list[Taken] = []
        try:
            for taken in steps:
                unread.append(taken)
                done = taken.step + 1
                saves = done % config.run.checkpoint_every == 0 or done == training.steps
                looks = due(done, config, training)
                if not (waits or saves or any(looks) or done in wanted or done % config.run.log_every == 0):
                    continue
                stopped = False
                for each, metrics, lost, stop in read(unread):
                    stopped |= stop
                    if lost:
                        unreadable.add(
                            distributed.everyone([(source.id(number), why) for number, why in each.unreadable])
                        )
                    if log is not None:
                        extra = measured(*looks, config, training) if each is taken else {}
                        log.write(each.step, {"epoch": (each.step + 1) / training.steps_per_epoch, **metrics, **extra})
                        if warn is not None and (warning := warn(extra)):
                            console.print(f"step {done}: {warning}", style="yellow", soft_wrap=True)
                unread.clear()
                if log is not None:
                    if done in wanted:  # before the checkpoint: a run resumed from it would not save this one
                        snapshots.save(run, done, training.method.encoder)
                    if saves or stopped:
                        log.flush()
                        save(run, config, training, step=done)
                if stopped and done < training.steps:
                    number = pending[0] if pending else signal.SIGTERM
                    raise Stopped(
                        number,
                        f"stopped by {signal.Signals(number).name} after step {done} of {training.steps}; everything "
                        f"is saved: continue with `manyview resume {run}`",
                    )
        except NotFinite as error:
            if log is not None:
                log.write_broken(error.step, error.index)
            last = checkpoint.latest(run / CHECKPOINTS)
            raise UserError(
                f"{error} (its samples are in {run / METRICS}); the last good checkpoint is {last}: start again with a "
                "lower --lr"
                f"{', with --precision bf16' * (config.optim.precision == 'fp16')}, or with --clip-grad 1"
            ) from error
    if log is not None:
        write(run / ENCODER, training.method.encoder.backbone.state_dict(), training.card)
        log.publish(report(run, source, training.augment, console))
    return run


def logged(run: Path) -> dict[str, Any]:
    """What loggers are told of a run besides its metrics."""
    facts = read_config(run)
    method = {"name": facts["method"], **facts["config"]["method"]}
    others = {name: facts.get(name) for name in ("version", "start", "environment")}
    return {**facts["config"], "method": method, "images": facts["data"], **others}


def waits_for(device: torch.device) -> bool:
    """Whether each step is read at once; a GPU works on while the host hands it the next steps."""
    return device.type != "cuda"


def pauses(config: AnyConfig, training: Training) -> dict[str, int]:
    """After how many steps checkpoints are saved, and kNN accuracy and contrast measured."""
    run, epoch = config.run, training.steps_per_epoch
    every = {"save": run.checkpoint_every, "knn": run.knn_every * epoch, "contrast": run.contrast_every * epoch}
    return {name: steps for name, steps in every.items() if steps}


def due(done: int, config: AnyConfig, training: Training) -> tuple[bool, bool]:
    """Whether kNN accuracy and contrast are measured after `done` steps. After the last they always are."""
    epoch, run = training.steps_per_epoch, config.run
    knn, contrast = (
        bool(every) and (done % (every * epoch) == 0 or done == training.steps)
        for every in (run.knn_every, run.contrast_every)
    )
    return knn, contrast


def measured(knn: bool, contrast: bool, config: AnyConfig, training: Training) -> dict[str, float]:
    encoder, values = training.method.encoder, dict[str, float]()
    if knn and training.knn is not None:
        frozen = FrozenEncoder(copy.deepcopy(encoder.backbone), training.card)
        values["knn"] = knn_accuracy(frozen, *training.knn, workers=config.data.workers)
    if contrast and training.contrast is not None:
        values |= training.contrast(encoder)
    return values


def begin(weights: Weights, config: AnyConfig, training: Training, console: Console) -> dict[str, Any]:
    """What the run starts from, measured as it will be after training."""
    with busy(console, f"measuring {weights.name} before the first step"):
        values = measured(True, True, config, training)
    found = {name: values[name] for name in LOOKS if name in values}
    words = ", ".join(told(name, found) for name in found) or "nothing is measured of its features"
    console.print(f"starting from {weights.name}: {words}", soft_wrap=True)
    return {"weights": weights.name, **found}


def report(
    run: Path, source: Source | None, augment: Augment | None, console: Console, *, against: str | None = None
) -> Path:
    """Writes report.html: with pictures if there is a `source`, and compared with the encoder `against` if given. Of a
    run that is not finished it shows the encoder of the newest checkpoint."""
    saved = (run / ENCODER).exists() or bool(kept(run / CHECKPOINTS))
    encoder = load(run) if source is not None and (saved or against is not None) else None
    pictures = versus = None
    if source is not None and encoder is not None and against is not None:
        with busy(console, f"comparing neighbours with those of {against}"):
            versus = beside(run, encoder, against, source)
    if source is not None and augment is not None:
        seed = int(read_config(run)["config"]["run"]["seed"])
        random = None if encoder is None else random_like(encoder, seed)
        with busy(console, "drawing the page: sample views, similarity of positives, nearest neighbours"):
            pictures = collect(source, augment, encoder, random)
    return write_report(run, pictures, versus=versus)


def save(run: Path, config: AnyConfig, training: Training, *, step: int) -> None:
    state = {
        "step": step,
        "card": card_as_text(training.card),
        "method": training.method.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "scaler": training.scaler.state_dict(),
        "config": json.dumps(plain(config)),
    }
    checkpoint.save(run / CHECKPOINTS, step, state, keep=config.run.keep)


def saved_with(state: Any, kind: type[Method], path: Path) -> AnyConfig:
    """The configuration in the checkpoint `path`."""
    try:
        values = json.loads(state["config"])
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"checkpoint {path} holds no configuration: remove it and resume from an older one") from error
    return read_settings(kind, values, path)


def refuse_other(saved: AnyConfig, config: AnyConfig, path: Path) -> None:
    """Resuming with another configuration would silently make another run of it."""
    old, new = (
        {key: value for group in plain(each).values() for key, value in group.items() if key not in FREE}
        for each in (saved, config)
    )
    if diff := [f"- {key} = {old[key]}; + {key} = {new[key]}" for key in sorted(old) if old[key] != new[key]]:
        raise UserError(
            f"the configuration differs from the one in {path.name} (- saved, + given): {'; '.join(diff)}: "
            "resume with the saved one, or start a new run"
        )


def refuse_other_order(run: Path, source: Source) -> None:
    """The order of shards that are fetched follows the room for them."""
    facts = read_config(run).get("data")
    had = facts.get("order", "") if isinstance(facts, dict) else ""
    if had != source.order_in_words:
        raise UserError(
            f"{run} took its samples {had or WHOLE}, and would now take them {source.order_in_words or WHOLE}: name "
            "the original data, with MANYVIEW_CACHE_SIZE as it was"
        )


def refuse_other_contrast(run: Path, contrast: ContrastMonitor | None) -> None:
    """A curve must not mix two sets of images."""
    if contrast is not None and contrast.fingerprint != fingerprint(run, "contrast"):
        raise UserError(
            f"contrast was measured on other images than {contrast.name}: name the original data, with its test split "
            "where it had one"
        )
