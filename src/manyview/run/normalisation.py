"""Mean and standard deviation of each channel, where they are measured: of views with networks of their own, and of
images that are not RGB."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from manyview.config import AnyConfig
from manyview.data import Source
from manyview.data.source import readable, track
from manyview.encoders import Encoder, Towers
from manyview.fields import FIELDS, IMAGE, eight_bits
from manyview.views.named import split_views
from manyview.views.statistics import mean_chroma, measure, refuse_grey, sampled

MEASURED = 500  # samples


def measure_views(encoder: Encoder, source: Source, seed: int) -> None:
    """Sets the normalisation of each view from some samples. Other encoders stay as they are."""
    towers = encoder.backbone
    if not isinstance(towers, Towers):
        return

    spaces = sorted({view.space for view in towers.named.values() if view.space is not None})
    there = source.present or {}

    def views() -> Iterator[dict[str, Tensor]]:
        chroma = []
        for fields, index in some_samples(source, seed):
            if spaces:
                chroma.append(mean_chroma(eight_bits(fields[IMAGE])))
            values = {name: FIELDS[name].values(field) for name, field in fields.items()}
            found = split_views(values, towers.named)
            yield {name: view[there[name][index]] if name in there else view for name, view in found.items()}
        # Grey images also make a channel constant: this error comes first, because it names the reason.
        if spaces and chroma:
            refuse_grey(chroma, ", ".join(spaces))

    statistics = measure(views())
    for name in towers.named:
        for kind, table in (("mean", statistics.mean), ("std", statistics.std)):
            numbers = torch.tensor(table[name]).view(-1, 1, 1)
            towers.normalise.get_submodule(name).get_buffer(kind).copy_(numbers)


def measured(config: AnyConfig, source: Source) -> AnyConfig:
    """With the mean and the deviation of channels that are not RGB, unless both are given: no augmentation has them."""
    views = config.views
    if config.data.channels == 3 or (views.channel_mean and views.channel_std):
        return config
    images = (
        {IMAGE: FIELDS[IMAGE].values(fields[IMAGE])}
        for fields, _ in some_samples(source.select([IMAGE]), config.run.seed)
    )
    found = measure(images, way_out="take the images without it, or give --channel-std")
    mean, std = views.channel_mean or found.mean[IMAGE], views.channel_std or found.std[IMAGE]
    return replace(config, views=replace(views, channel_mean=mean, channel_std=std))


def some_samples(source: Source, seed: int, limit: int = MEASURED) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Fields (n, c, H, W) of at most `limit` samples from everywhere in the source, and their numbers (n,). The
    same seed gives the same samples."""
    chosen = source.near[sampled(len(source.near), limit, seed)]
    if source.size is not None:
        yield from ((source.batch(some), some) for some in chosen.split(100))
        return
    for number, sample in readable(source, track(chosen.tolist(), f"colours of {source.name}")):
        yield {name: field.unsqueeze(0) for name, field in sample.items()}, torch.tensor([number])
