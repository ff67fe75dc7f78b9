"""One network for each view of a sample, such as its luminance, its colours and its depth: CMC's encoders."""

import copy
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders.layers import layer_features
from manyview.views.named import named_views, planes_of, split_views

__all__ = ["TowerHeads", "Towers"]


class Towers(nn.Module):
    """Samples in [0, 1] in, the features of all views side by side out (CMC, §4.1).

    `views` are words of `named_views`; a sample is an RGB image, with the further images that they name stacked behind
    it. The channels of all views are normalised by `mean` and `std`, which are measured once and then belong to the
    weights: whoever loads them needs no other file.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, views: str, build: Callable[[int], nn.Module], width: Callable[[nn.Module], int]) -> None:
        """`build` makes the network of a view with so many channels, `width` tells how many features one gives."""
        super().__init__()
        self.named = named_views(views)
        self.planes = planes_of(self.named)
        self.networks = nn.ModuleDict({name: build(len(view.channels)) for name, view in self.named.items()})
        self.widths = [width(network) for network in self.networks.values()]
        self.num_features = sum(self.widths)
        self._width = width
        self.channels = [len(view.channels) for view in self.named.values()]
        self.register_buffer("mean", torch.zeros(sum(self.channels), 1, 1))
        self.register_buffer("std", torch.ones(sum(self.channels), 1, 1))

    def views(self, samples: Tensor) -> dict[str, Tensor]:
        """The normalised views (N, c, h, w) of samples (N, C, h, w), by name."""
        means, deviations = self.mean.split(self.channels), self.std.split(self.channels)
        return {
            name: (view.to(mean.dtype) - mean) / std
            for (name, view), mean, std in zip(split_views(samples, self.named).items(), means, deviations, strict=True)
        }

    def only(self, names: Iterable[str]) -> "Towers":
        """A copy with these views alone."""
        names = list(names)
        networks = iter([copy.deepcopy(self.networks[name]) for name in names])
        part = Towers(",".join(self.named[name].word for name in names), lambda _: next(networks), self._width)
        for own, whole in ((part.mean, self.mean), (part.std, self.std)):
            channels = dict(zip(self.named, whole.split(self.channels), strict=True))
            own.copy_(torch.cat([channels[name] for name in names]))
        return part

    def forward(self, samples: Tensor) -> Tensor:
        return torch.cat([self.networks[name](view) for name, view in self.views(samples).items()], 1)

    def layers(self, samples: Tensor, names: Iterable[str], keep: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Outputs of the named layers, those of the views one after the other along the channels."""
        names = list(names)
        found = [
            layer_features(self.networks[view], images, names, keep=keep)
            for view, images in self.views(samples).items()
        ]
        return {name: torch.cat([layers[name] for layers in found], 1) for name in names}


class TowerHeads(nn.Module):
    """A head for each view: features side by side (N, F) to unit embeddings side by side (N, V·D)."""

    def __init__(self, widths: Iterable[int], build: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.heads = nn.ModuleList(build(width) for width in self.widths)

    def forward(self, features: Tensor) -> Tensor:
        parts = [head(part) for head, part in zip(self.heads, features.split(self.widths, 1), strict=True)]
        precise = torch.promote_types(parts[0].dtype, torch.float32)
        return torch.cat([F.normalize(part.to(precise), dim=1) for part in parts], 1)
