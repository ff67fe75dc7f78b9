"""A run from its configuration to its directory: builds the parts, drives the loop, keeps what must not be lost."""

import difflib
import json
import math
import platform
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from rich.console import Console
from rich.table import Table
from timm.scheduler.scheduler import Scheduler
from torch import Tensor

import manyview
from manyview import checkpoint, distributed
from manyview.atomic import replacing
from manyview.config import AnyConfig
from manyview.data import Batch, Loader, Source, check_unreadable, open_source
from manyview.data.imbalance import counts_in_words
from manyview.data.source import Unreadable, track
from manyview.diagnose import Watch
from manyview.encoders import Encoder, SplitBackbone, build_encoder, load, random_like, save_backbone
from manyview.errors import UserError
from manyview.evaluate import knn_accuracy, open_test, splits
from manyview.loggers import Log
from manyview.methods import Method
from manyview.report import collect, write_report
from manyview.train import NotFinite, build_optimizer, build_schedule, train
from manyview.views import Augment, recipe
from manyview.views.statistics import measure_split, sampled

__all__ = ["Stopped", "build_augment", "pick_device", "pretrain", "read_facts", "report", "resume"]

# A resumed run may differ in these: they decide where and how fast it runs, not what it computes.
FREE = {"out", "config", "preset", "device", "compile", "checkpoint_every", "keep", "log_every", "data", "workers"}


MEASURED = 500  # images whose colours are measured


class Stopped(Exception):
    """A signal ended the run early, after a whole step and with everything saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


@dataclass
class Parts:
    """What a run computes with."""

    method: Method
    augment: Augment
    optimizer: torch.optim.Optimizer
    schedule: Scheduler
    scaler: torch.amp.GradScaler
    device: torch.device
    steps: int
    steps_per_epoch: int
    knn: tuple[Source, Source] | None  # training and test samples of the kNN during the run
    contrast: Watch | None


def pretrain(kind: type[Method], config: AnyConfig, source: Source, console: Console) -> Path:
    """Starts a run in a new directory and carries it to its end; one that `torchrun` restarts goes on."""
    run = config.run.out
    writes = distributed.rank() == 0
    # Rank 0 looks for all: by the time another one did, the directory might have been filled by this very start.
    ours = distributed.anyone(writes and begun_by_this_launch(run))
    if ours and distributed.anyone(writes and any((run / "checkpoints").glob("step-*.pt"))):
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
        with replacing(run / "config.json") as file:
            file.write(json.dumps(facts, indent=2).encode() + b"\n")
        announce(kind, config, source, parts, console)
        save(run, config, parts, step=0)
    return finish(run, config, source, parts, start=0, console=console)


def begun_by_this_launch(run: Path) -> bool:
    """Whether this process belongs to the `torchrun` that made the directory: then nobody else's run is in it."""
    here = distributed.launch()
    return here is not None and (run / "config.json").exists() and read_facts(run).get("launch") == here


def resume(run: Path, kind: type[Method], config: AnyConfig, source: Source, console: Console) -> Path:
    """Carries an interrupted run on, exactly where its last checkpoint left it."""
    path = checkpoint.latest(run / "checkpoints")
    state = checkpoint.load(path)
    refuse_other(json.loads(state["config"]), plain(config), path)  # first: the configuration also chooses samples
    facts = read_facts(run)
    if source.fingerprint != facts["data"]["fingerprint"]:
        raise UserError(
            f"--data {config.data.data} is not what {run} was trained on ({len(source)} samples, fingerprint "
            f"{source.fingerprint}, against {facts['data']['samples']}, {facts['data']['fingerprint']}): "
            "name the original data"
        )
    parts = build(kind, config, source)
    refuse_other_watch(facts, parts.contrast)
    parts.method.load_state_dict(state["method"])
    parts.optimizer.load_state_dict(state["optimizer"])
    parts.scaler.load_state_dict(state["scaler"])
    start = int(state["step"])
    console.print(f"resuming {run} at step {start} of {parts.steps}")
    return finish(run, config, source, parts, start=start, console=console)


def build(kind: type[Method], config: AnyConfig, source: Source) -> Parts:
    check_values(config)
    if len(source) < config.optim.batch_size:
        raise UserError(
            f"--batch-size {config.optim.batch_size} exceeds the {len(source)} samples of --data {config.data.data}: "
            f"use --batch-size {len(source)} or less"
        )
    check_division(config)
    device = pick_device(config.run.device)
    torch.manual_seed(config.run.seed)
    encoder = build_encoder(kind.encoder_config(config.method, config.encoder), image_size=config.views.image_size)
    measure_colours(encoder, source, config.run.seed)
    method = kind(config.method, encoder, samples=len(source), seed=config.run.seed).to(device)
    if config.optim.precision == "float64":
        method.double()
    if config.run.compile:
        for module in method.modules():
            if isinstance(module, Encoder):
                module.compile()
    method.parallelise()
    augment = build_augment(kind, config)
    steps_per_epoch = len(source) // config.optim.batch_size
    steps = config.optim.max_steps or config.optim.epochs * steps_per_epoch
    optimizer = build_optimizer(method, config.optim)
    schedule = build_schedule(optimizer, config.optim, steps=steps, steps_per_epoch=steps_per_epoch)
    scaler = torch.amp.GradScaler(device.type, enabled=config.optim.precision == "fp16")
    writes = distributed.rank() == 0
    knn = watch_knn(config, source) if writes else None
    contrast = watch_contrast(config, source, augment) if writes else None
    return Parts(method, augment, optimizer, schedule, scaler, device, steps, steps_per_epoch, knn, contrast)


def build_augment(kind: type[Method], config: AnyConfig) -> Augment:
    return Augment(
        recipe(
            config.views.augment,
            min_crop=config.views.min_crop,
            normalise=kind.encoder_config(config.method, config.encoder).split is None,  # else the encoder does it
        ),
        views=kind.view_count(config.method),
        size=config.views.image_size,
        seed=config.run.seed,
        compile=config.run.compile,
    )


def measure_colours(encoder: Encoder, source: Source, seed: int) -> None:
    """Where the encoder sees the channels of a colour space apart: by what they are normalised, from some images."""
    backbone = encoder.backbone
    if not isinstance(backbone, SplitBackbone):
        return
    statistics = measure_split(some_images(source, seed), backbone.split)
    for view, numbers in backbone.channels.items():
        for number, mean, std in zip(numbers, statistics.mean[view], statistics.std[view], strict=True):
            backbone.mean[number], backbone.std[number] = mean, std


def some_images(source: Source, seed: int) -> Iterator[Tensor]:
    """Images (n, 3, H, W) for statistics, the same ones whoever asks."""
    chosen = sampled(len(source), MEASURED, seed)
    if source.size is not None:
        yield from (source.batch(some) for some in chosen.split(100))
        return
    for number in track(chosen.tolist(), f"colours of {source.name}"):
        with suppress(Unreadable):
            yield source.read(number).unsqueeze(0)


def check_division(config: AnyConfig) -> None:
    """Ranks, parts of a step and parts of a batch normalisation are all equally large."""
    world, optim, splits = distributed.world_size(), config.optim, config.encoder.bn_splits
    shares = {
        f"the {world} processes": world,
        f"--accumulate {optim.accumulate}": optim.accumulate,
        f"--bn-splits {splits}": splits,
    }
    divisor = math.prod(shares.values())
    if optim.batch_size % divisor:
        by = " and ".join(name for name, share in shares.items() if share > 1)
        raise UserError(
            f"--batch-size {optim.batch_size} does not divide into equal parts by {by}: choose a multiple of {divisor}"
        )


# The fields that make no sense at zero or below, or below one, those that are shares, and those that need company.
POSITIVE = {"batch_size", "epochs", "max_steps", "lr", "image_size", "checkpoint_every", "keep", "log_every"} | {
    "temperature", "queue_size", "keys", "key_passes", "accumulate", "encoded_views", "t", "rbf_t", "draw",
    "watch_t_neg",
}  # fmt: skip
NOT_NEGATIVE = {"lam", "weight_decay", "warmup_epochs", "knn_every", "watch_every", "workers"} | {
    "beta", "t_pos", "t_neg", "align_weight", "uniform_weight", "contrastive_weight",
}  # fmt: skip
AT_LEAST_ONE = {"imbalance_ratio"}
SHARES = {"momentum", "sgd_momentum", "bank_momentum"}
SEVERAL = {"views"}

LR_RULES = {"none": "", "linear": " per 256 samples", "sqrt": " by the root of the batch over 256"}


def check_values(config: AnyConfig) -> None:
    for group in plain(config).values():
        for name, value in group.items():
            flag = f"--{name.replace('_', '-')} {value}"
            if value is not None and name in POSITIVE and not value > 0:
                raise UserError(f"{flag} must be greater than 0")
            if name in NOT_NEGATIVE and not value >= 0:
                raise UserError(f"{flag} must not be negative")
            if name in AT_LEAST_ONE and not value >= 1:
                raise UserError(f"{flag} must be at least 1")
            if name in SHARES and not 0 <= value <= 1:
                raise UserError(f"{flag} must lie between 0 and 1")
            if name in SEVERAL and isinstance(value, int) and not value >= 2:
                raise UserError(f"{flag} leaves a query without a positive: use 2 or more")


def finish(run: Path, config: AnyConfig, source: Source, parts: Parts, *, start: int, console: Console) -> Path:
    """Runs what is left, then writes the encoder and the report."""
    writes = distributed.rank() == 0
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
    steps = train(
        parts.method,
        listing_unreadable(loader, source, run / "unreadable.txt"),
        parts.augment,
        parts.optimizer,
        parts.schedule,
        steps=parts.steps,
        device=parts.device,
        clip_grad=config.optim.clip_grad,
        accumulate=config.optim.accumulate,
        precision=config.optim.precision,
        scaler=parts.scaler,
    )
    with ExitStack() as stack:
        log = Log(run, console, start=start, steps=parts.steps, every=config.run.log_every) if writes else None
        if log is not None:
            stack.enter_context(log)
        pending = stack.enter_context(deferred_signals())
        try:
            for step, metrics in steps:
                done = step + 1
                # A signal may have reached some ranks before this step and others after it: they agree to stop.
                signalled = distributed.anyone(bool(pending))
                if log is not None:
                    log.write(step, {"epoch": done / parts.steps_per_epoch, **metrics, **watch(done, config, parts)})
                    if done % config.run.checkpoint_every == 0 or done == parts.steps or signalled:
                        log.flush()
                        save(run, config, parts, step=done)
                if signalled and done < parts.steps:
                    number = pending[0] if pending else signal.SIGTERM
                    raise Stopped(
                        number,
                        f"stopped by {signal.Signals(number).name} after step {done} of {parts.steps}; everything "
                        f"is saved: go on with `manyview resume {run}`",
                    )
        except NotFinite as error:
            last = checkpoint.latest(run / "checkpoints")
            raise UserError(
                f"{error} (samples {error.index}); the last good checkpoint is {last}: start anew with a lower --lr"
                f"{', with --precision bf16' * (config.optim.precision == 'fp16')}, or with --clip-grad 1"
            ) from error
    if writes:
        save_backbone(
            run / "encoder.safetensors",
            parts.method.encoder,
            image_size=config.views.image_size,
            mean=parts.augment.recipe.mean,
            std=parts.augment.recipe.std,
        )
        report(run, source, parts.augment, console)
    return run


def watch(done: int, config: AnyConfig, parts: Parts) -> dict[str, float]:
    """What is wanted of the encoder in the steps that end an epoch; a run has its contrast at the end in any case."""
    encoder, recipe, size = parts.method.encoder, parts.augment.recipe, config.views.image_size
    epoch, values = parts.steps_per_epoch, dict[str, float]()
    if parts.knn is not None and done % (config.run.knn_every * epoch) == 0:
        values["knn"] = knn_accuracy(encoder, *parts.knn, image_size=size, mean=recipe.mean, std=recipe.std)
    if parts.contrast is not None and (done % (config.run.watch_every * epoch) == 0 or done == parts.steps):
        values |= parts.contrast(encoder)
    return values


def report(run: Path, source: Source | None, augment: Augment | None, console: Console) -> Path:
    """report.html, with pictures where the data is at hand."""
    pictures = None
    if source is not None and augment is not None and (run / "encoder.safetensors").exists():
        encoder = load(run)
        seed = int(read_facts(run)["config"]["run"]["seed"])
        with console.status("drawing the report"):
            pictures = collect(source, augment, encoder, random_like(encoder, seed))
    return write_report(run, pictures)


def save(run: Path, config: AnyConfig, parts: Parts, *, step: int) -> None:
    state = {
        "step": step,
        "method": parts.method.state_dict(),
        "optimizer": parts.optimizer.state_dict(),
        "scaler": parts.scaler.state_dict(),
        "config": json.dumps(plain(config)),
    }
    checkpoint.save(run / "checkpoints", step, state, keep=config.run.keep)


def refuse_other(saved: dict[str, Any], given: dict[str, Any], path: Path) -> None:
    """Another configuration would quietly make another run of it."""
    old, new = (
        [f"{key} = {value}" for group in config.values() for key, value in group.items() if key not in FREE]
        for config in (saved, given)
    )
    if old != new:
        diff = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
        raise UserError(
            f"the configuration differs from the one in {path.name} (- saved, + given): {'; '.join(diff)}: "
            "resume with the saved one, or start a new run"
        )


def watch_knn(config: AnyConfig, source: Source) -> tuple[Source, Source] | None:
    if not config.run.knn_every:
        return None
    if source.labels is None:
        raise UserError(
            f"--knn-every {config.run.knn_every} needs labels, which --data {config.data.data} has not: use 0"
        )
    train_set, test_set, _ = splits(config.data.data)
    return train_set, test_set


def watch_contrast(config: AnyConfig, source: Source, augment: Augment) -> Watch | None:
    if not config.run.watch_every:
        return None
    watched, name = watched_samples(config, source)
    return Watch(watched, augment, name=name, t_neg=config.run.watch_t_neg, workers=config.data.workers)


def watched_samples(config: AnyConfig, source: Source) -> tuple[Source, str]:
    """Images that are not learnt from, where there are any, and what they are called."""
    data, chosen = config.data, config.run.watch_data
    if chosen is not None:
        try:
            test = open_test(chosen)
        except UserError as error:
            raise UserError(f"--watch-data: {error}") from error
        return test, f"{test.name} (--watch-data)"
    try:
        test = open_source(data.data, split="test", labelled=not data.unlabelled)
    except UserError:  # also a set whose test part is not there: it can be learnt from nevertheless
        return source, f"{source.name} (training data)"
    return test, f"{test.name} (test split)"


def refuse_other_watch(facts: dict[str, Any], contrast: Watch | None) -> None:
    """One curve must not be made of two sets."""
    if contrast is not None and contrast.fingerprint != facts["contrast"]["fingerprint"]:
        raise UserError(
            f"contrast was watched on {facts['contrast']['data']}, and {contrast.name} holds other images: "
            "name the original data, with its test split where it had one"
        )


def listing_unreadable(batches: Iterable[Batch], source: Source, path: Path) -> Iterator[Batch]:
    """The batches, while what some rank could not read is listed beside the run; too much of it ends the run."""
    listed = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()

    def add(entries: Iterable[tuple[str, str]]) -> None:
        fresh = {f"{name}\t{' '.join(reason.split())}": None for name, reason in entries}.keys() - listed
        if fresh:
            listed.update(fresh)
            if distributed.rank() == 0:
                with open(path, "a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in sorted(fresh))
            check_unreadable(len(listed), len(source), path)

    add(source.unreadable)
    for batch in batches:
        if distributed.anyone(bool(batch.unreadable)):
            add(distributed.everyone(list(zip(map(source.id, batch.unreadable), batch.reasons, strict=True))))
        yield batch


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


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if name == "cuda" and distributed.world_size() > 1:
            torch.cuda.set_device(distributed.local_device())
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"--device {name} cannot be used here ({str(error).splitlines()[0]}): use cpu or auto"
        ) from error
    return device


def plain(config: AnyConfig) -> dict[str, Any]:
    """The configuration as JSON holds it."""
    result: dict[str, Any] = json.loads(json.dumps(asdict(config), default=str))
    return result


def read_facts(run: Path) -> dict[str, Any]:
    path = run / "config.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"{run} is no run directory (no config.json): name one that `manyview pretrain` made"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from a backup") from error
    return facts


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
        table.add_row("watch", f"contrast watched on {len(parts.contrast)} images of {parts.contrast.name}")
    table.add_row("run", str(config.run.out))
    console.print(table)
