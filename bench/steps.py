"""Our side of every training: a method around `tiny` and the steps that the library's loop takes with it."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from manyview.config import OptimConfig
from manyview.data import Batch
from manyview.encoders import Encoder, EncoderConfig, Momentum, build_encoder
from manyview.methods import Method, find
from manyview.train import build_optimizer, build_schedule, train
from manyview.views import Augment, Plan, recipe

__all__ = [
    "BATCH",
    "ENCODER",
    "KEYS",
    "MOMENTUM",
    "OPTIM",
    "QUEUE",
    "SIZE",
    "TEMPERATURE",
    "Ready",
    "Steps",
    "augmentation",
    "bare_loop",
    "endless",
    "forward_pass",
    "loop",
    "method_of",
]

BATCH, QUEUE, KEYS, SIZE = 256, 4096, 5, 32
ENCODER = EncoderConfig(backbone="tiny")
OPTIM = OptimConfig(batch_size=BATCH)
MOMENTUM, TEMPERATURE = 0.99, 0.2
FOREVER = 1_000_000  # steps: no run here comes near the end of its schedule

Steps = Iterator[object]


def method_of(name: str, *, queue: int = QUEUE, **settings: Any) -> Method:
    kind = find(name)
    common = {"queue_size": queue, "momentum": MOMENTUM, "temperature": TEMPERATURE}
    known = {field.name for field in fields(kind.Config)}
    config = kind.Config(**{key: value for key, value in common.items() if key in known}, **settings)
    torch.manual_seed(0)
    return kind(config, build_encoder(ENCODER), samples=queue, seed=0)


def augmentation(views: int) -> Augment:
    return Augment(recipe("moco-v2"), views=views, size=SIZE, seed=0)


class Ready(Augment):
    """Views that are made once and then only handed out, so that a step is timed without them."""

    def __init__(self, augment: Augment, images: Tensor) -> None:
        self._plan = augment.plan(torch.arange(len(images)), 0)
        self.made = augment.apply(images, self._plan)  # (V, N, 3, h, w)

    def plan(self, *_: Any, **__: Any) -> Plan:
        return self._plan

    def apply(self, *_: Any, **__: Any) -> Tensor:
        return self.made


def endless(images: Tensor) -> Iterator[Batch]:
    """The same batch of images (N, 3, H, W) for every step."""
    index = torch.arange(len(images))
    return (Batch(step, step, index, images) for step in itertools.count())


def loop(method: Method, batches: Iterable[Batch], augment: Augment) -> Steps:
    """The library's own loop, one step at a time."""
    optimizer = build_optimizer(method, OPTIM)
    schedule = build_schedule(optimizer, OPTIM, steps=FOREVER, steps_per_epoch=FOREVER)
    return train(method, batches, augment, optimizer, schedule, steps=FOREVER, device=torch.device("cpu"))


def bare_loop(views: Tensor) -> Steps:
    """Nothing but the passes that a step with these views (1 + M′, N, 3, h, w) cannot do without: the query forward and
    backward, SGD, and all keys forward."""
    torch.manual_seed(0)
    encoder = build_encoder(ENCODER)
    keys = Momentum(encoder).encoder
    optimizer = torch.optim.SGD(
        encoder.parameters(), OPTIM.lr, momentum=OPTIM.sgd_momentum, weight_decay=OPTIM.weight_decay
    )
    direction = torch.randn(views.shape[1], encoder.dim)
    while True:
        (encoder(views[0]) * direction).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            keys(views[1:].flatten(0, 1))
        yield None


def forward_pass(images: Tensor) -> Callable[[], Tensor]:
    """The key encoder on N images (N, 3, h, w), as a step runs it: batch statistics, no gradient."""
    encoder: Encoder = Momentum(build_encoder(ENCODER)).encoder

    @torch.no_grad()
    def once() -> Tensor:
        return encoder(images)  # type: ignore[no-any-return]

    return once
