"""Mean and standard deviation of every channel of every view, by which views are normalised."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from manyview import counter
from manyview.atomic import replacing
from manyview.errors import UserError
from manyview.views.colourspaces import split

__all__ = ["Statistics", "measure", "measure_split", "sampled"]

_TAG = 0x7374617469737469  # "statisti": keeps these draws apart from everybody else's
_CONSTANT = 1e-6  # of the mean: less is rounding
_GREY = 1e-3  # of the largest deviation: the little by which greys' chroma varies must not be blown up to unit variance

Channels = tuple[float, ...]


@dataclass(frozen=True)
class Statistics:
    """Of each view by name, one number for each channel."""

    mean: Mapping[str, Channels]
    std: Mapping[str, Channels]

    def __post_init__(self) -> None:
        shapes = [{view: len(channels) for view, channels in table.items()} for table in (self.mean, self.std)]
        if shapes[0] != shapes[1] or not shapes[0]:
            raise ValueError("mean and std are not of the same views and channels")
        numbers = [number for table in (self.mean, self.std) for channels in table.values() for number in channels]
        if not all(map(math.isfinite, numbers)) or min(min(channels) for channels in self.std.values()) <= 0:
            raise ValueError("means must be finite, and standard deviations positive")

    def normalise(self, views: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Views (…, c, h, w) with mean 0 and variance 1 in each channel of the measured images."""
        for name, view in views.items():
            known, channels = len(self.mean.get(name, ())), view.shape[-3]
            if known != channels:
                raise UserError(
                    f"view {name} has {channels} channels, and the statistics, of {', '.join(self.mean)}, "
                    f"know {known} of it: measure them on these views"
                )
        return {
            name: (view - _planes(self.mean, name, view)) / _planes(self.std, name, view)
            for name, view in views.items()
        }

    def save(self, path: Path) -> None:
        with replacing(path) as file:
            file.write(json.dumps(asdict(self), indent=2).encode())

    @classmethod
    def load(cls, path: Path) -> "Statistics":
        try:
            content = json.loads(path.read_bytes())
            tables = [
                {name: tuple(map(float, channels)) for name, channels in content[field].items()}
                for field in ("mean", "std")
            ]
            return cls(*tables)
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}): measure the statistics first") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} holds no statistics of views ({error}): measure them again") from error


def _planes(table: Mapping[str, Channels], name: str, view: Tensor) -> Tensor:
    return torch.tensor(table[name], device=view.device).view(-1, 1, 1)


def measure(batches: Iterable[Mapping[str, Tensor]]) -> Statistics:
    """Over all pixels of batches of views (N, c, h, w), which are asked for one at a time."""
    sums: dict[str, Tensor] = {}
    pixels: dict[str, int] = {}
    for views in batches:
        for name, view in views.items():
            values = view.movedim(-3, 0).flatten(1).double()
            sums[name] = sums.get(name, 0) + torch.stack((values.sum(1), values.square().sum(1)))
            pixels[name] = pixels.get(name, 0) + values.shape[1]
    if not sums:
        raise UserError("there are no images to measure the statistics of views on")
    mean, std = {}, {}
    for name, total in sums.items():
        first, second = total / pixels[name]
        deviation = (second - first.square()).clamp_min(0).sqrt()
        if bool((deviation <= _CONSTANT * first.abs()).any()):
            raise UserError(f"a channel of view {name} is the same in all pixels: leave this view out")
        mean[name], std[name] = tuple(first.tolist()), tuple(deviation.tolist())
    return Statistics(mean, std)


def measure_split(batches: Iterable[Tensor], name: str) -> Statistics:
    """Of the views that a colour space splits uint8 batches (N, 3, h, w) into.

    They are read one at a time, so that a progress bar may wrap them; of a large set `sampled` chooses some.
    """
    statistics = measure(split(batch, name) for batch in batches)
    deviations = [deviation for channels in statistics.std.values() for deviation in channels]
    if min(deviations) < _GREY * max(deviations):
        raise UserError(f"the images are grey, so that {name} has nothing to split: use images with colours")
    return statistics


def sampled(samples: int, limit: int, seed: int) -> Tensor:
    """At most `limit` of the numbers of `samples` samples, in order: the same ones whoever asks."""
    return counter.permutation(samples, seed, _TAG)[:limit].sort().values
