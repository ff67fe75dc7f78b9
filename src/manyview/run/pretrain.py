"""A run from its first step to its directory: drives the loop and keeps what must not be lost."""

import difflib
import json
import platform
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import timm
import torch
from rich.console import Console
from rich.table import Table

import manyview
from manyview import distributed
from manyview.atomic import replacing
from manyview.config import AnyConfig, plain
from manyview.data import Loader, Source, check_unreadable
from manyview.data.parts import counts_in_words
from manyview.diagnose import ContrastMonitor
from manyview.encoders import load, random_like, save_backbone
from manyview.errors import Stopped, UserError
from manyview.evaluate.online import knn_accuracy
from manyview.methods.base import Method
from manyview.report import beside, collect, write_report
from manyview.run import checkpoint, snapshots
from manyview.run.build import Parts, build
from manyview.run.files import CHECKPOINTS, CONFIG, ENCODER, UNREADABLE, read_config
from manyview.run.log import Log
from manyview.run.saved import read_settings
from manyview.train import NotFinite, Taken, read, train
from manyview.views import Augment

__all__ = ["pretrain", "report", "resume"]

# A resumed run may differ in these: they decide where and how fast it runs, not what it computes.
FREE = {"out", "config", "preset", "device", "compile", "checkpoint_every", "keep", "log_every", "data", "workers"}
LR_RULES = {"none": "", "linear": " per 256 samples", "sqrt": " by the root of the batch over 256"}


def pretrain(kind: type[Method], config: AnyConfig, source: Source, console: Console) -> Path:
    """Starts a run in a new directory and carries it to its end; one that `torchrun` restarts goes on."""
    run = config.run.out
    writes = distributed.rank() == 0
    # Rank 0 looks for all: by the time another one did, the directory might have been filled by this very start.
    ours = distributed.anyone(writes and begun_by_this_launch(run))
    if ours and distributed.anyone(writes and bool(checkpoint.kept(run / CHECKPOINTS))):
        return resume(run, kind, config, source, console)
    if not ours and distributed.anyone(writes and run.exists() and (not run.is_dir() or any(run.iterdir()))):
        raise UserError(f"--out {run} is not empty: go on with `manyview resume {run}`, or name a new directory")
    parts = build(kind, config, source)  # before anything is written: a wrong flag leaves nothing behind
    if writes:
        facts = {
            "method": kind.name,
            "version": manyview.__version__,
            "preset": config.run.preset,
            "launch": distributed.launch(),
            "config": plain(config),
            "data": source.describe(),
            "contrast": None if parts.contrast is None else parts.contrast.describe(),
            "environment": environment(parts.device),
        }
        with replacing(run / CONFIG) as file:
            file.write(json.dumps(facts, indent=2).encode() + b"\n")
        announce(kind, config, source, parts, console)
        if config.run.snapshots:
            snapshots.save(run, 0, parts.method.encoder)
        save(run, config, parts, step=0)
    return finish(run, config, source, parts, start=0, console=console)


def begun_by_this_launch(run: Path) -> bool:
    """Whether this process belongs to the `torchrun` that made the directory: then nobody else's run is in it."""
    here = distributed.launch()
    return here is not None and (run / CONFIG).exists() and read_config(run).get("launch") == here


def resume(run: Path, kind: type[Method], config: AnyConfig, source: Source, console: Console) -> Path:
    """Carries an interrupted run on, exactly where its last checkpoint left it."""
    path = checkpoint.latest(run / CHECKPOINTS)
    state = checkpoint.load(path)
    refuse_other(
        read_settings(kind, json.loads(state["config"]), path), config, path
    )  # first: the configuration also chooses samples
    facts = read_config(run)
    maker, here = facts.get("version"), manyview.__version__
    if source.fingerprint != facts["data"]["fingerprint"]:
        raise UserError(
            f"--data {config.data.data} is not what {run} was trained on ({len(source)} samples, fingerprint "
            f"{source.fingerprint}, against {facts['data']['samples']}, {facts['data']['fingerprint']}): "
            + ("name the original data" if maker == here else f"resume it with manyview {maker}, which made it")
        )
    parts = build(kind, config, source)
    refuse_other_contrast(facts, parts.contrast)
    try:
        parts.method.load_state_dict(state["method"])
        parts.optimizer.load_state_dict(state["optimizer"])
        parts.scaler.load_state_dict(state["scaler"])
        start = int(state["step"])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        way_out = "remove it and resume from an older one" if maker == here else f"resume it with manyview {maker}"
        raise UserError(
            f"checkpoint {path} does not fit {kind.name} (manyview {maker} wrote it, this is {here}): {way_out}"
        ) from error
    console.print(f"resuming {run} at step {start} of {parts.steps}", soft_wrap=True)
    return finish(run, config, source, parts, start=start, console=console)


def finish(run: Path, config: AnyConfig, source: Source, parts: Parts, *, start: int, console: Console) -> Path:
    """Runs what is left, then writes the encoder and the report."""
    writes = distributed.rank() == 0
    wanted = snapshots.due(parts.steps, config.run.snapshots)
    loader = Loader(
        source,
        batch_size=config.optim.batch_size,
        seed=config.run.seed,
        start=start,
        stop=parts.steps,
        workers=config.data.workers,
        crop=parts.augment.crop,
        rank=distributed.rank(),
        world=distributed.world_size(),
    )
    waits = waits_for(parts.device)
    unreadable = UnreadableList(source, run / UNREADABLE)
    with ExitStack() as stack:
        pending = stack.enter_context(deferred_signals())  # first: the log is closed in peace
        log = Log(run, console, start=start, steps=parts.steps, every=config.run.log_every) if writes else None
        if log is not None:
            stack.enter_context(log)
        steps = train(
            parts.method,
            loader,
            parts.augment,
            parts.optimizer,
            parts.schedule,
            steps=parts.steps,
            device=parts.device,
            clip_grad=config.optim.clip_grad,
            accumulate=config.optim.accumulate,
            precision=config.optim.precision,
            scaler=parts.scaler,
            stop=lambda: bool(pending),
            wait=waits,
        )
        unread: list[Taken] = []
        try:
            for taken in steps:
                unread.append(taken)
                done = taken.step + 1
                saves = done % config.run.checkpoint_every == 0 or done == parts.steps
                looks = due(done, config, parts)
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
                        extra = measured(*looks, config, parts) if each is taken else {}
                        log.write(each.step, {"epoch": (each.step + 1) / parts.steps_per_epoch, **metrics, **extra})
                unread.clear()
                if log is not None:
                    if done in wanted:  # before the checkpoint, from which a resumed run would go on without it
                        snapshots.save(run, done, parts.method.encoder)
                    if saves or stopped:
                        log.flush()
                        save(run, config, parts, step=done)
                if stopped and done < parts.steps:
                    number = pending[0] if pending else signal.SIGTERM
                    raise Stopped(
                        number,
                        f"stopped by {signal.Signals(number).name} after step {done} of {parts.steps}; everything "
                        f"is saved: go on with `manyview resume {run}`",
                    )
        except NotFinite as error:
            if log is not None:
                log.write_broken(error.step)
            last = checkpoint.latest(run / CHECKPOINTS)
            raise UserError(
                f"{error} (samples {error.index}); the last good checkpoint is {last}: start anew with a lower --lr"
                f"{', with --precision bf16' * (config.optim.precision == 'fp16')}, or with --clip-grad 1"
            ) from error
    if writes:
        save_backbone(
            run / ENCODER,
            parts.method.encoder,
            image_size=config.views.image_size,
            mean=parts.augment.mean,
            std=parts.augment.std,
        )
        report(run, source, parts.augment, console)
    return run


def waits_for(device: torch.device) -> bool:
    """Whether each step is read at once; a GPU works on while the host hands it the next steps."""
    return device.type != "cuda"


def due(done: int, config: AnyConfig, parts: Parts) -> tuple[bool, bool]:
    """Whether kNN and contrast are evaluated after so many steps; a run has its contrast at the end in any case."""
    epoch, run = parts.steps_per_epoch, config.run
    knn = bool(run.knn_every) and done % (run.knn_every * epoch) == 0
    return knn, bool(run.contrast_every) and (done % (run.contrast_every * epoch) == 0 or done == parts.steps)


def measured(knn: bool, contrast: bool, config: AnyConfig, parts: Parts) -> dict[str, float]:
    encoder, augment, values = parts.method.encoder, parts.augment, dict[str, float]()
    if knn and parts.knn is not None:
        values["knn"] = knn_accuracy(
            encoder,
            *parts.knn,
            image_size=config.views.image_size,
            mean=augment.mean,
            std=augment.std,
            workers=config.data.workers,
        )
    if contrast and parts.contrast is not None:
        values |= parts.contrast(encoder)
    return values


def report(
    run: Path, source: Source | None, augment: Augment | None, console: Console, *, against: Path | None = None
) -> Path:
    """report.html, with pictures where the data is at hand, and with another encoder beside the run's own."""
    pictures = versus = None
    if source is not None and against is not None:
        with console.status("comparing neighbours"):
            versus = beside(run, against, source)
    if source is not None and augment is not None and (run / ENCODER).exists():
        encoder = load(run)
        seed = int(read_config(run)["config"]["run"]["seed"])
        with console.status("drawing the report"):
            pictures = collect(source, augment, encoder, random_like(encoder, seed))
    return write_report(run, pictures, versus=versus)


def save(run: Path, config: AnyConfig, parts: Parts, *, step: int) -> None:
    state = {
        "step": step,
        "method": parts.method.state_dict(),
        "optimizer": parts.optimizer.state_dict(),
        "scaler": parts.scaler.state_dict(),
        "config": json.dumps(plain(config)),
    }
    checkpoint.save(run / CHECKPOINTS, step, state, keep=config.run.keep)


def refuse_other(saved: AnyConfig, config: AnyConfig, path: Path) -> None:
    """Another configuration would quietly make another run of it."""
    old, new = (
        [
            f"{key} = {value}"
            for group in plain(each).values()
            for key, value in sorted(group.items())
            if key not in FREE
        ]
        for each in (saved, config)
    )
    if old != new:
        diff = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
        raise UserError(
            f"the configuration differs from the one in {path.name} (- saved, + given): {'; '.join(diff)}: "
            "resume with the saved one, or start a new run"
        )


def refuse_other_contrast(facts: dict[str, Any], contrast: ContrastMonitor | None) -> None:
    """One curve must not be made of two sets."""
    if contrast is not None and contrast.fingerprint != facts["contrast"]["fingerprint"]:
        raise UserError(
            f"contrast was measured on {facts['contrast']['data']}, and {contrast.name} holds other images: "
            "name the original data, with its test split where it had one"
        )


class UnreadableList:
    """The list beside a run of images that cannot be read; too many of them end the run."""

    def __init__(self, source: Source, path: Path) -> None:
        self.source, self.path = source, path
        self.listed = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set[str]()
        self.add(source.unreadable)

    def add(self, images: Iterable[tuple[str, str]]) -> None:
        """(id, reason) of what some rank could not read; all ranks are told the same."""
        fresh = {f"{name}\t{' '.join(reason.split())}": None for name, reason in images}.keys() - self.listed
        if fresh:
            self.listed.update(fresh)
            if distributed.rank() == 0:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in sorted(fresh))
            check_unreadable(len(self.listed), len(self.source), self.path)


@contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted, so that the step in hand can be finished and saved."""
    pending: list[int] = []
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, lambda number, _: pending.append(number)) for kind in kinds}
    try:
        yield pending
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def environment(device: torch.device) -> dict[str, str | int]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "timm": timm.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "processes": distributed.world_size(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
    }


def announce(kind: type[Method], config: AnyConfig, source: Source, parts: Parts, console: Console) -> None:
    """The set-up in a few lines, before the first step."""
    count = sum(parameter.numel() for parameter in parts.method.encoder.parameters())
    table = Table(title=f"{kind.name} on {source.name}", title_justify="left", show_header=False, box=None)
    table.add_row("preset", f"{config.run.preset} (--preset)")
    table.add_row(
        "data",
        f"{len(source)} images, views of {config.views.image_size} px, recipe {config.views.augment}, crops from "
        f"{parts.augment.recipe.scale[0]:.0%} of the area",
    )
    if config.data.imbalance != "none":
        counts = counts_in_words(source.class_counts)
        table.add_row("imbalance", f"{config.data.imbalance} (--imbalance), images per class: {counts}")
    table.add_row(
        "encoder", f"{config.encoder.backbone}, {count / 1e6:.2f} M parameters with its head, on {parts.device}"
    )
    settings = ", ".join(f"{key.replace('_', '-')} {value}" for key, value in asdict(config.method).items())
    table.add_row(kind.name, settings)
    table.add_row("fit", f"{parts.steps} steps of {config.optim.batch_size} ({parts.steps / parts.steps_per_epoch:.1f} "
                  f"epochs), {config.optim.optimizer}, lr {config.optim.lr}{LR_RULES[config.optim.lr_rule]} "
                  f"{config.optim.schedule}")  # fmt: skip
    if parts.contrast is not None:
        table.add_row("contrast", f"measured on {len(parts.contrast)} images of {parts.contrast.name}")
    table.add_row("run", str(config.run.out))
    console.print(table)
