"""The rest of a set-up, for those who only name a method and their images."""

from dataclasses import fields, replace
from typing import Any

from manyview.config import AnyConfig, Config, DataConfig, OptimConfig, RunConfig
from manyview.data import Source
from manyview.methods import Method

__all__ = ["SMALL_SIDE", "paper", "small"]

SMALL_SIDE = 64  # images up to this many pixels take the small preset


def paper(method: type[Method], run: RunConfig, data: DataConfig) -> AnyConfig:
    """The set-up in which the method was published."""
    return Config(method.Config(), run, data, method.paper.views, method.paper.encoder, method.paper.optim)


def small(method: type[Method], run: RunConfig, data: DataConfig, source: Source) -> AnyConfig:
    """A set-up for small images on one machine; τ, λ and M′ stay the paper's."""
    base = paper(method, run, data)
    own: dict[str, Any] = {"momentum": 0.99, "queue_size": max(1, min(4096, len(source) // 2))}
    known = {field.name for field in fields(base.method)}
    return replace(
        base,
        method=replace(base.method, **{name: value for name, value in own.items() if name in known}),
        views=replace(base.views, image_size=source.median_side),
        encoder=replace(base.encoder, backbone="tiny"),
        optim=OptimConfig(batch_size=max(1, min(256, len(source))), epochs=20, lr=0.06),
    )
