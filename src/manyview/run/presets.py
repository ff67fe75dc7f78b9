"""Presets: defaults of all settings for a method and its data."""

from dataclasses import replace
from typing import Literal

from manyview.config import AnyConfig, Config, DataConfig, OptimConfig, RunConfig, ViewConfig
from manyview.data import Source
from manyview.encoders import EncoderConfig
from manyview.errors import UserError
from manyview.methods import described, find
from manyview.methods.base import CMCSetup, Method, SmallSet

Preset = Literal["small", "paper", "paper-cifar", CMCSetup]

SMALL_SIDE = 64  # larger images are photographs
CIFAR_SIDE = 48  # in `paper-cifar`, larger images take the values of STL-10


def named(
    preset: Preset, method: type[Method], run: RunConfig, data: DataConfig, source: Source, *, views: int
) -> AnyConfig:
    """The configuration of a preset. Some values depend on the images of `source` and on the `views` per sample."""
    if preset == "paper":
        return paper(method, run, data)
    if preset == "small":
        return small(method, run, data, source, views=views)
    if preset == "paper-cifar":
        return paper_cifar(method, run, data, source, views=views)
    return paper_cmc(method, run, data, preset)


def paper(method: type[Method], run: RunConfig, data: DataConfig) -> AnyConfig:
    """The setup of the method's paper."""
    return Config(method.Config(), run, data, method.paper.views, method.paper.encoder, method.paper.optim)


def paper_cifar(method: type[Method], run: RunConfig, data: DataConfig, source: Source, *, views: int) -> AnyConfig:
    """CACR's C.1, for objectives with negatives in the batch. The paper's batches are 768 for two views, 128 for five.

    The images decide which of its three sets it is: STL-10 if they are larger than `CIFAR_SIDE`, else CIFAR-100 if
    there are 100 classes, else CIFAR-10. Its "fc8" is the linear head. The probe's "fc7" is what the encoder exports.
    """
    dataset: SmallSet = "cifar100" if len(source.classes) == 100 else "cifar10"
    if source.median_side > CIFAR_SIDE:
        dataset = "stl10"
    own = method.on_small_sets(dataset, views)
    if own is None:
        others = ", ".join(name for name in described() if find(name).on_small_sets(dataset, views) is not None)
        raise UserError(
            f"--preset paper-cifar has no values for {method.name}, whose negatives are not other views of the batch: "
            f"use --preset small, or one of {others}"
        )
    return Config(
        replace(method.Config(), **own),
        run,
        data,
        {
            "cifar10": ViewConfig(augment="cifar", image_size=32),
            "cifar100": ViewConfig(augment="cifar100", image_size=32),
            "stl10": ViewConfig(augment="stl10", image_size=64),
        }[dataset],
        EncoderConfig(backbone="alexnet-small", head="linear"),
        OptimConfig(
            batch_size=768 if views == 2 else 128,
            epochs=200,
            lr=0.12,
            lr_rule="linear",
            schedule="step",
            milestones=(155 / 200, 170 / 200, 185 / 200),
        ),
    )


def paper_cmc(method: type[Method], run: RunConfig, data: DataConfig, setup: CMCSetup) -> AnyConfig:
    """CMC's appendix E: AlexNet on ImageNet and on STL-10, and the encoder for RGB-D images of NYU Depth-V2."""
    own = method.in_cmc_setup(setup)
    if own is None:
        others = ", ".join(name for name in described() if find(name).in_cmc_setup(setup) is not None)
        raise UserError(f"--preset {setup} belongs to CMC and has no values for {method.name}: use one of {others}")
    encoder, size = {
        "paper-alexnet": (EncoderConfig(backbone="alexnet-half", head="linear", dim=128), 224),
        "paper-stl10": (EncoderConfig(backbone="alexnet-half-small", head="linear", dim=64), 64),
        "paper-nyu": (EncoderConfig(backbone="nyu", head="linear", dim=256), 128),  # as wide as its fc7
    }[setup]
    views = ViewConfig(augment="cmc", image_size=size)
    return Config(replace(method.Config(), **own.method), run, data, views, encoder, own.optim)


def small(method: type[Method], run: RunConfig, data: DataConfig, source: Source, *, views: int) -> AnyConfig:
    """For small images on one machine. The method says what it needs (`Method.small`); other hyper-parameters stay the
    paper's. The papers' smallest crops cover a fifth of an image or less. That suits large images: of 32 pixels 14
    would remain.
    """
    base, own = paper(method, run, data), method.small(len(source), views)
    return replace(
        base,
        method=replace(base.method, **own.method),
        views=replace(base.views, image_size=source.median_side, min_crop=0.6),
        encoder=replace(base.encoder, backbone="tiny", bn_splits=own.bn_splits),
        optim=replace(own.optim, epochs=20),
    )


def at_equal_cost(method: type[Method], config: AnyConfig) -> AnyConfig:
    """Applies --encoded-views to the batch size."""
    encoded, views = config.optim.encoded_views, method.view_count(config.method)
    if encoded is None:
        return config
    if encoded < views:
        raise UserError(f"--encoded-views {encoded} is less than one sample of {views} views: use {views} or more")
    return replace(config, optim=replace(config.optim, batch_size=encoded // views))
