"""Everything that trains in a run, built from its configuration. Flags that do not fit together are refused here."""

import math
from dataclasses import dataclass, replace

import torch
from timm.scheduler.scheduler import Scheduler

from manyview import bounds, distributed
from manyview.config import AnyConfig, ViewConfig
from manyview.data import Source
from manyview.diagnose.monitor import ContrastMonitor
from manyview.encoders import Card, Encoder, Weights, build_encoder, initialise
from manyview.encoders.features import card_of
from manyview.errors import UserError, complaints, refuse
from manyview.fields import IMAGE
from manyview.methods.base import Method
from manyview.run.device import pick_device
from manyview.run.monitors import contrast_monitor, knn_sources
from manyview.run.normalisation import measure_views
from manyview.train import build_optimizer, build_schedule
from manyview.views import Augment, policy
from manyview.views.policies import RAND, Policy, for_channels


@dataclass
class Training:
    """Everything that trains in a run, and what is measured meanwhile."""

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

    @property
    def card(self) -> Card:
        """Of the encoder, as files hold it."""
        return card_of(self.method.encoder, self.augment.size, self.augment.mean, self.augment.std)


def build(
    kind: type[Method], config: AnyConfig, source: Source, *, looks: bool = True, weights: Weights | None = None
) -> Training:
    """`looks`: whether something will be measured meanwhile, for which images are read. `weights` are those that the
    encoder starts from, if not from random ones."""
    bounds.check(config)
    built: list[Method] = []
    refuse(
        complaints(
            lambda: check_batch(config, source),
            lambda: check_division(config),
            lambda: source.labels is None and knn_sources(config, source),
            lambda: built.append(build_method(kind, config, source, weights)),
        )
    )
    (method,) = built
    device = pick_device(config.run.device)
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
    looks &= distributed.rank() == 0
    knn = knn_sources(config, source) if looks else None
    contrast = contrast_monitor(config, source, augment) if looks and kind.contrastive else None
    return Training(method, augment, optimizer, schedule, scaler, device, steps, steps_per_epoch, knn, contrast)


def build_method(kind: type[Method], config: AnyConfig, source: Source, weights: Weights | None) -> Method:
    """The method for these samples, with an encoder that starts from the `weights`, or from random ones."""
    if config.encoder.norm == "fixed" and config.encoder.init is None:
        raise UserError("--norm fixed keeps the statistics of trained weights: name them with --init")
    torch.manual_seed(config.run.seed)
    settings = kind.encoder_config(config.method, config.encoder)
    encoder = build_encoder(settings, image_size=config.views.image_size, in_channels=config.data.channels)
    measure_views(encoder, source, config.run.seed)
    if weights is not None:
        initialise(encoder, weights)
    method = kind(config.method, encoder, samples=len(source), seed=config.run.seed)
    if source.groups is not None:
        method.know_groups(source.groups)
    if source.present is not None and source.missing:
        method.know_present(source.present)
    return method


def build_augment(kind: type[Method], config: AnyConfig) -> Augment:
    encoder = kind.encoder_config(config.method, config.encoder)
    others = [name for name in encoder.fields if name != IMAGE]
    if others and config.views.augment.endswith(RAND):
        raise UserError(
            f"--augment {config.views.augment} would rotate and shear the image, but not "
            f"{', '.join(others)}: use --augment {config.views.augment.removesuffix(RAND)}"
        )
    chosen = policy(
        config.views.augment,
        min_crop=config.views.min_crop,
        normalise=encoder.split is None,  # else the encoder does it
    )
    if config.data.channels != 3:
        chosen = for_channels(chosen, config.data.channels)
    return Augment(
        normalised(chosen, config.views),
        fields=encoder.fields,
        views=kind.view_count(config.method),
        size=config.views.image_size,
        seed=config.run.seed,
        compile=config.run.compile,
    )


def normalised(policy: Policy, views: ViewConfig) -> Policy:
    """With the mean and the deviation that are asked for."""
    mean, std = views.channel_mean or policy.mean, views.channel_std or policy.std
    for name, numbers in (("channel-mean", mean), ("channel-std", std)):
        if len(numbers) != len(policy.mean):
            raise UserError(f"--{name} has {len(numbers)} numbers for {len(policy.mean)} channels: give as many")
    return replace(policy, mean=mean, std=std)


def check_batch(config: AnyConfig, source: Source) -> None:
    if len(source) < config.optim.batch_size:
        raise UserError(
            f"--batch-size {config.optim.batch_size} exceeds the {len(source)} samples of --data {config.data.data}: "
            f"use --batch-size {len(source)} or less"
        )


def check_division(config: AnyConfig) -> None:
    """A batch is divided equally among processes, accumulation steps and parts of batch normalisation."""
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
            f"--batch-size {optim.batch_size} does not divide into equal parts by {by}: use a multiple of {divisor}"
        )
