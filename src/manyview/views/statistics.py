"""Mean and standard deviation of every channel of every view, by which views are normalised."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview import counter
from manyview.errors import UserError

_TAG = 0x7374617469737469  # "statisti": keeps these draws apart from everybody else's
_CONSTANT = 1e-6  # of the mean: less is rounding
_GREY = 0.5  # levels of 255: the little by which a file's rounding colours greys must not be blown up to unit variance

Channels = tuple[float, ...]


@dataclass(frozen=True)
class Statistics:
    """Of each view by name, one number for each channel."""

    mean: Mapping[str, Channels]
    std: Mapping[str, Channels]


def measure(batches: Iterable[Mapping[str, Tensor]], *, way_out: str = "leave this view out") -> Statistics:
    """Over all known pixels of batches of views (N, c, h, w), which are asked for one at a time. `way_out` is what a
    channel without any spread asks for."""
    sums: dict[str, Tensor] = {}
    pixels: dict[str, int] = {}
    for views in batches:
        for name, view in views.items():
            values = view.movedim(-3, 0).flatten(1).double()
            known = int((~values[0].isnan()).sum())
            values = values.nan_to_num_(0.0) if known < values.shape[1] else values
            sums[name] = sums.get(name, 0) + torch.stack((values.sum(1), values.square().sum(1)))
            pixels[name] = pixels.get(name, 0) + known
    if not pixels:
        raise UserError(
            "there are no images to measure the statistics of views on: none of those looked at can be read"
        )
    for name, count in pixels.items():
        if not count:
            raise UserError(
                f"none of the samples that were looked at has the view {name}: leave it out of --views"
                f"{', or correct --depth-scale' * (name == 'depth')}"
            )
    mean, std = {}, {}
    for name, total in sums.items():
        first, second = total / pixels[name]
        deviation = (second - first.square()).clamp_min(0).sqrt()
        if bool((deviation <= _CONSTANT * first.abs()).any()):
            raise UserError(f"a channel of view {name} is the same in all pixels: {way_out}")
        mean[name], std[name] = tuple(first.tolist()), tuple(deviation.tolist())
    return Statistics(mean, std)


def mean_chroma(images: Tensor) -> float:
    """How far the channels of uint8 images (N, 3, h, w) differ, over all pixels, in levels of 255."""
    return float((images.amax(1) - images.amin(1)).double().mean())


def refuse_grey(chroma: Sequence[float], spaces: str) -> None:
    """`chroma` of some images, which views in these colour spaces are to be taken from."""
    if sum(chroma) <= _GREY * len(chroma):
        raise UserError(f"the images are grey, so that {spaces} has nothing to split: use images with colours")


def sampled(samples: int, limit: int, seed: int) -> Tensor:
    """At most `limit` of the numbers of `samples` samples, in order: the same ones whoever asks."""
    return counter.permutation(samples, seed, _TAG)[:limit].sort().values
