"""The rest of a set-up, for those who only name a method and their images."""

from dataclasses import fields, replace
from typing import Literal

from manyview.config import AnyConfig, Config, DataConfig, OptimConfig, RunConfig, ViewConfig
from manyview.data import Source
from manyview.encoders import EncoderConfig
from manyview.errors import UserError
from manyview.methods import described, find
from manyview.methods.base import Method
from manyview.methods.cmc_patch import CMCPatch
from manyview.methods.many_views import ManyViews, SmallSet
from manyview.methods.moco_v2 import MoCoV2Config
from manyview.methods.view_graph import ViewGraph

__all__ = [
    "SMALL_SIDE",
    "CMCSetup",
    "Preset",
    "at_equal_cost",
    "by_size",
    "named",
    "paper",
    "paper_cifar",
    "paper_cmc",
    "small",
]

CMCSetup = Literal["paper-alexnet", "paper-stl10", "paper-nyu"]
Preset = Literal["small", "paper", "paper-cifar", CMCSetup]

SMALL_SIDE = 64  # images up to this many pixels take the small preset
CIFAR_SIDE = 48  # and up to this many CIFAR's values of `paper-cifar`, others those of STL-10


def by_size(source: Source) -> Preset:
    """The preset of those who name none."""
    return "small" if source.median_side <= SMALL_SIDE else "paper"


def named(
    preset: Preset, method: type[Method], run: RunConfig, data: DataConfig, source: Source, *, views: int
) -> AnyConfig:
    """What `--preset` asks for. Some follow the images of `source`, and how many `views` of each a step takes."""
    if preset == "paper":
        return paper(method, run, data)
    if preset == "small":
        return small(method, run, data, source, views=views)
    if preset == "paper-cifar":
        return paper_cifar(method, run, data, source, views=views)
    return paper_cmc(method, run, data, preset)


def paper(method: type[Method], run: RunConfig, data: DataConfig) -> AnyConfig:
    """The set-up in which the method was published."""
    return Config(method.Config(), run, data, method.paper.views, method.paper.encoder, method.paper.optim)


def paper_cifar(method: type[Method], run: RunConfig, data: DataConfig, source: Source, *, views: int) -> AnyConfig:
    """CACR's C.1, for objectives with negatives in the batch. It gives batches for two and for five views: 768 and 128.

    Which of its three sets it is, is told by what the images are like: above `CIFAR_SIDE` STL-10, else by the number of
    classes, CIFAR-10 where that is unknown. Its "fc8" is the linear head, the probe's "fc7" what the encoder exports.
    """
    if not issubclass(method, ManyViews):
        own = ", ".join(name for name in described() if issubclass(find(name), ManyViews))
        raise UserError(
            f"--preset paper-cifar has no values for {method.name}, whose negatives are not other views of the batch: "
            f"use --preset small, or one of {own}"
        )
    dataset: SmallSet = "cifar100" if len(source.classes) == 100 else "cifar10"
    if source.median_side > CIFAR_SIDE:
        dataset = "stl10"
    return Config(
        replace(method.Config(), **method.on_small_sets(dataset, views)),
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
    if not issubclass(method, ViewGraph):
        own = ", ".join(name for name in described() if issubclass(find(name), ViewGraph))
        raise UserError(f"--preset {setup} is one of CMC's and has no values for {method.name}: use one of {own}")
    patches = issubclass(method, CMCPatch)
    own_values: dict[str, object] = {}
    if not patches:
        own_values = {
            "paper-alexnet": {"contrast": "nce", "draw": 4096},  # D.2
            "paper-stl10": {"contrast": "nce", "temperature": 0.1},
            "paper-nyu": {},
        }[setup]
    encoder, size = {
        "paper-alexnet": (EncoderConfig(backbone="alexnet-half", head="linear", dim=128), 224),
        "paper-stl10": (EncoderConfig(backbone="alexnet-half-small", head="linear", dim=64), 64),
        "paper-nyu": (EncoderConfig(backbone="nyu", head="linear", dim=256), 128),  # as wide as its fc7
    }[setup]
    sgd = OptimConfig(lr=0.03, weight_decay=1e-4, schedule="step")
    adam = OptimConfig(optimizer="adam", lr=1e-3, weight_decay=0.0, schedule="step", decay=0.2)
    if setup == "paper-nyu":
        optim = replace(adam, epochs=3000, milestones=(2000 / 3000, 2400 / 3000, 2800 / 3000))
    elif patches:
        optim = replace(adam, epochs=200, milestones=(120 / 200, 160 / 200), lr=1e-2 if size == 224 else 1e-3)
    elif setup == "paper-stl10":
        optim = replace(sgd, epochs=320, milestones=(200 / 320, 240 / 320, 280 / 320))
    else:
        optim = replace(sgd, epochs=200, milestones=(120 / 200, 160 / 200))
    views = ViewConfig(augment="cmc", image_size=size)
    known = {field.name for field in fields(method.Config)}
    values = {name: value for name, value in own_values.items() if name in known}
    return Config(replace(method.Config(), **values), run, data, views, encoder, optim)


def small(method: type[Method], run: RunConfig, data: DataConfig, source: Source, *, views: int) -> AnyConfig:
    """A set-up for small images on one machine; the objective's hyper-parameters stay the paper's, but for MoCo v2's τ.

    A softmax half as warm does better on small images with every method that takes it (docs/SCENES.md). With a queue
    the batch need not be large, and many small steps learn more than few large ones. Its keys must not be told from the
    fresh ones by the batch that they were normalised with: hence the split statistics. A memory bank starts from random
    entries, which drive the views of one sample apart; in a few hundred steps SGD does not bring them together again,
    while Adam does. The papers' smallest crops, a fifth of an image or less, are for large ones: of 32 pixels they
    would leave 14.
    """
    base = paper(method, run, data)
    known = {field.name for field in fields(base.method)}
    queued, banked = "queue_size" in known, "draw" in known
    if queued:
        batch, optim = 64, OptimConfig(lr=0.03)
    elif banked:
        batch, optim = 128, OptimConfig(optimizer="adam", lr=0.003)
    else:
        batch = 256 if issubclass(method, ViewGraph) else 512 // views
        optim = base.optim if base.optim.optimizer == "adam" else OptimConfig(lr=0.06)
    batch = min(batch, len(source))
    own = {"momentum": 0.99, "queue_size": max(1, min(4096, len(source) // 8))} if queued else {}
    own |= {"draw": max(1, min(4096, len(source) // 2))} if banked else {}
    own |= {"temperature": 0.1} if isinstance(base.method, MoCoV2Config) else {}
    splits = 2 if queued and batch % 2 == 0 else 1
    return replace(
        base,
        method=replace(base.method, **own),
        views=replace(base.views, image_size=source.median_side, min_crop=0.6),
        encoder=replace(base.encoder, backbone="tiny", bn_splits=splits),
        optim=replace(optim, batch_size=batch, epochs=20),
    )


def at_equal_cost(method: type[Method], config: AnyConfig) -> AnyConfig:
    """With the batch that --encoded-views asks for, if it does."""
    encoded, views = config.optim.encoded_views, method.view_count(config.method)
    if encoded is None:
        return config
    if encoded < views:
        raise UserError(f"--encoded-views {encoded} is not even one sample of {views} views: use {views} or more")
    return replace(config, optim=replace(config.optim, batch_size=encoded // views))
