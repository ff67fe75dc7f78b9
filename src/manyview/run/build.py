"""What a run computes with, built from its configuration; a flag that cannot be is refused here."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import torch
from timm.scheduler.scheduler import Scheduler
from torch import Tensor

from manyview import bounds, distributed
from manyview.config import AnyConfig
from manyview.data import Source, open_source
from manyview.data.source import Unreadable, track
from manyview.diagnose import ContrastMonitor
from manyview.encoders import Encoder, Towers, build_encoder
from manyview.errors import UserError
from manyview.evaluate.split import open_test, splits
from manyview.fields import FIELDS, IMAGE
from manyview.methods.base import Method
from manyview.train import build_optimizer, build_schedule
from manyview.views import Augment, recipe
from manyview.views.named import split_views
from manyview.views.recipes import RAND
from manyview.views.statistics import mean_chroma, measure, refuse_grey, sampled

__all__ = ["Parts", "build", "build_augment", "pick_device"]

MEASURED = 500  # images whose colours are measured


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
    contrast: ContrastMonitor | None


def build(kind: type[Method], config: AnyConfig, source: Source) -> Parts:
    bounds.check(config)
    if len(source) < config.optim.batch_size:
        raise UserError(
            f"--batch-size {config.optim.batch_size} exceeds the {len(source)} samples of --data {config.data.data}: "
            f"use --batch-size {len(source)} or less"
        )
    check_division(config)
    device = pick_device(config.run.device)
    torch.manual_seed(config.run.seed)
    encoder = build_encoder(kind.encoder_config(config.method, config.encoder), image_size=config.views.image_size)
    measure_views(encoder, source, config.run.seed)
    method = kind(config.method, encoder, samples=len(source), seed=config.run.seed)
    if source.groups is not None:
        method.know_groups(source.groups)
    if source.present is not None:
        method.know_present(source.present)
    method.to(device)
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
    knn = knn_sources(config, source) if writes else None
    contrast = contrast_monitor(config, source, augment) if writes and kind.contrastive else None
    return Parts(method, augment, optimizer, schedule, scaler, device, steps, steps_per_epoch, knn, contrast)


def build_augment(kind: type[Method], config: AnyConfig) -> Augment:
    encoder = kind.encoder_config(config.method, config.encoder)
    others = [name for name in encoder.fields if name != IMAGE]
    if others and config.views.augment.endswith(RAND):
        raise UserError(
            f"--augment {config.views.augment} would turn and shear the colours alone, away from "
            f"{', '.join(others)}: use --augment {config.views.augment.removesuffix(RAND)}"
        )
    return Augment(
        recipe(
            config.views.augment,
            min_crop=config.views.min_crop,
            normalise=encoder.split is None,  # else the encoder does it
        ),
        fields=encoder.fields,
        views=kind.view_count(config.method),
        size=config.views.image_size,
        seed=config.run.seed,
        compile=config.run.compile,
    )


def measure_views(encoder: Encoder, source: Source, seed: int) -> None:
    """Where the encoder sees several views apart: by what their channels are normalised, from some samples."""
    towers = encoder.backbone
    if not isinstance(towers, Towers):
        return

    spaces = sorted({view.space for view in towers.named.values() if view.space is not None})
    there = source.present or {}

    def views() -> Iterator[dict[str, Tensor]]:
        chroma = []
        for fields, index in some_samples(source, seed):
            if spaces:
                chroma.append(mean_chroma(fields[IMAGE]))
            values = {name: FIELDS[name].values(field) for name, field in fields.items()}
            found = split_views(values, towers.named)
            yield {name: view[there[name][index]] if name in there else view for name, view in found.items()}
        # Said before a channel is found to be constant, which it is for the same reason.
        if spaces and chroma:
            refuse_grey(chroma, ", ".join(spaces))

    statistics = measure(views())
    for name in towers.named:
        for kind, table in (("mean", statistics.mean), ("std", statistics.std)):
            numbers = torch.tensor(table[name]).view(-1, 1, 1)
            towers.normalise.get_submodule(name).get_buffer(kind).copy_(numbers)


def some_samples(source: Source, seed: int, limit: int = MEASURED) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Fields (n, c, H, W) of at most `limit` samples from everywhere in the source and their numbers (n,): the same
    ones whoever asks."""
    chosen = sampled(len(source), limit, seed)
    if source.size is not None:
        yield from ((source.batch(some), some) for some in chosen.split(100))
        return
    for number in track(chosen.tolist(), f"colours of {source.name}"):
        with suppress(Unreadable):
            sample = source.read(number)
            yield {name: field.unsqueeze(0) for name, field in sample.items()}, torch.tensor([number])


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


def knn_sources(config: AnyConfig, source: Source) -> tuple[Source, Source] | None:
    if not config.run.knn_every:
        return None
    if source.labels is None:
        raise UserError(
            f"--knn-every {config.run.knn_every} needs labels, which --data {config.data.data} has not: use 0"
        )
    train_set, test_set, _ = splits(config.data.data)
    return train_set, test_set


def contrast_monitor(config: AnyConfig, source: Source, augment: Augment) -> ContrastMonitor | None:
    if not config.run.contrast_every:
        return None
    samples, name = contrast_samples(config, source)
    return ContrastMonitor(samples, augment, name=name, t_neg=config.run.contrast_t_neg, workers=config.data.workers)


def contrast_samples(config: AnyConfig, source: Source) -> tuple[Source, str]:
    """Images that are not learnt from, where there are any, and what they are called."""
    data, chosen = config.data, config.run.contrast_data
    if chosen is not None:
        try:
            test = open_test(chosen)
        except UserError as error:
            raise UserError(f"--contrast-data: {error}") from error
        return test, f"{test.name} (--contrast-data)"
    try:
        test = open_source(data.data, split="test", labelled=not data.unlabelled)
    except UserError:  # also a set whose test part is not there: it can be learnt from nevertheless
        return source, f"{source.name} (training data)"
    return test, f"{test.name} (test split)"


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
