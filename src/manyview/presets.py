"""The rest of a set-up, for those who only name a method and their images."""

from dataclasses import fields, replace

from manyview.config import AnyConfig, Config, DataConfig, OptimConfig, RunConfig
from manyview.data import Source
from manyview.methods import Method

__all__ = ["SMALL_SIDE", "paper", "small"]

SMALL_SIDE = 64  # images up to this many pixels take the small preset


def paper(method: type[Method], run: RunConfig, data: DataConfig) -> AnyConfig:
    """The set-up in which the method was published."""
    return Config(method.Config(), run, data, method.paper.views, method.paper.encoder, method.paper.optim)


def small(method: type[Method], run: RunConfig, data: DataConfig, source: Source) -> AnyConfig:
    """A set-up for small images on one machine; τ, λ and M′ stay the paper's.

    With a queue the batch need not be large, and many small steps learn more than few large ones. Its keys must not be
    told from the fresh ones by the batch that they were normalised with: hence the split statistics. The papers'
    smallest crops, a fifth of an image or less, are for large ones: of 32 pixels they would leave 14.
    """
    base = paper(method, run, data)
    queued = "queue_size" in {field.name for field in fields(base.method)}
    batch = min(64 if queued else 256, len(source))
    own = {"momentum": 0.99, "queue_size": max(1, min(4096, len(source) // 8))} if queued else {}
    splits = 2 if queued and batch % 2 == 0 else 1
    return replace(
        base,
        method=replace(base.method, **own),
        views=replace(base.views, image_size=source.median_side, min_crop=0.6),
        encoder=replace(base.encoder, backbone="tiny", bn_splits=splits),
        optim=OptimConfig(batch_size=batch, epochs=20, lr=0.03 if queued else 0.06),
    )
