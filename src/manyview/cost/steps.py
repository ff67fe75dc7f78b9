"""Steps of a method on views that are ready, to be timed and weighed one at a time."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from manyview.config import OptimConfig
from manyview.data import Batch
from manyview.encoders import Encoder, EncoderConfig, Momentum, build_encoder
from manyview.fields import IMAGE
from manyview.methods import find
from manyview.methods.base import Method
from manyview.train import build_optimizer, build_schedule, train
from manyview.views import Augment, Plan, policy

MOMENTUM, TEMPERATURE, QUEUE = 0.99, 0.2, 4096
FOREVER = 1_000_000  # steps: nothing that is timed comes near the end of its schedule

Steps = Iterator[object]


def method_config(name: str, *, queue: int = QUEUE, **settings: Any) -> Any:
    """With as much of the common set-up as the method knows, and `settings` of its own."""
    common = {"queue_size": queue, "momentum": MOMENTUM, "temperature": TEMPERATURE}
    known = {field.name for field in fields(find(name).Config)}
    return find(name).Config(**{key: value for key, value in common.items() if key in known}, **settings)


def method_of(name: str, *, queue: int = QUEUE, backbone: str = "tiny", **settings: Any) -> Method:
    kind, config = find(name), method_config(name, queue=queue, **settings)
    torch.manual_seed(0)
    return kind(config, build_encoder(EncoderConfig(backbone=backbone)), samples=queue, seed=0)


def augmentation(views: int, size: int) -> Augment:
    return Augment(policy("moco-v2"), views=views, size=size, seed=0)


class Ready(Augment):
    """Views that are made once and then only handed out, so that a step is timed without them."""

    def __init__(self, augment: Augment, images: Tensor) -> None:
        self._plan = augment.plan(torch.arange(len(images)), 0)
        self.made = augment.apply({IMAGE: images}, self._plan)[IMAGE]  # (V, N, 3, h, w)

    def plan(self, *_: Any, **__: Any) -> Plan:
        return self._plan

    def apply(self, *_: Any, **__: Any) -> dict[str, Tensor]:
        return {IMAGE: self.made}


def endless(images: Tensor) -> Iterator[Batch]:
    """The same batch of images (N, 3, H, W) for every step."""
    index = torch.arange(len(images))
    return (Batch(step, step, index, {IMAGE: images}) for step in itertools.count())


def loop(method: Method, batches: Iterable[Batch], augment: Augment, *, device: str = "cpu") -> Steps:
    """The library's own loop, one step at a time."""
    optim = OptimConfig()
    optimizer = build_optimizer(method, optim)
    schedule = build_schedule(optimizer, optim, steps=FOREVER, steps_per_epoch=FOREVER)
    return train(method, batches, augment, optimizer, schedule, steps=FOREVER, device=torch.device(device))


def forward_pass(images: Tensor, *, backbone: str = "tiny") -> Callable[[], Tensor]:
    """The key encoder on N images (N, 3, h, w), as a step runs it: batch statistics, no gradient."""
    encoder: Encoder = Momentum(build_encoder(EncoderConfig(backbone=backbone))).encoder

    @torch.no_grad()
    def once() -> Tensor:
        return encoder(images)  # type: ignore[no-any-return]

    return once
