"""One network for each view that a colour space splits an image into: CMC's encoders, from RGB images."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders.layers import layer_features
from manyview.views.colourspaces import SPLITS, convert

__all__ = ["SplitBackbone", "SplitHead"]


class SplitBackbone(nn.Module):
    """RGB images in [0, 1] in, the features of all views side by side out (CMC, §4.1).

    The channels of the colour space are normalised by `mean` and `std`, which are measured once and then belong to the
    weights: whoever loads them needs no other file.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, split: str, build: Callable[[int], nn.Module], width: Callable[[nn.Module], int]) -> None:
        """`build` makes the network of a view with so many channels, `width` tells how many features one gives."""
        super().__init__()
        self.split, self.channels = split, dict(SPLITS[split].views)
        self.networks = nn.ModuleDict({view: build(len(numbers)) for view, numbers in self.channels.items()})
        self.widths = [width(network) for network in self.networks.values()]
        self.num_features = sum(self.widths)
        self.register_buffer("mean", torch.zeros(3, 1, 1))
        self.register_buffer("std", torch.ones(3, 1, 1))

    def views(self, images: Tensor) -> dict[str, Tensor]:
        """The normalised views (N, c, h, w) of images (N, 3, h, w), by name."""
        channels = (convert(images, self.split).to(self.mean.dtype) - self.mean) / self.std
        return {view: channels[:, list(numbers)] for view, numbers in self.channels.items()}

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([self.networks[view](channels) for view, channels in self.views(images).items()], 1)

    def layers(self, images: Tensor, names: Iterable[str], keep: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Outputs of the named layers, those of the views one after the other along the channels."""
        names = list(names)
        found = [
            layer_features(self.networks[view], channels, names, keep=keep)
            for view, channels in self.views(images).items()
        ]
        return {name: torch.cat([layers[name] for layers in found], 1) for name in names}


class SplitHead(nn.Module):
    """A head for each view: features side by side (N, F) to unit embeddings side by side (N, V·D)."""

    def __init__(self, widths: Iterable[int], build: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.heads = nn.ModuleList(build(width) for width in self.widths)

    def forward(self, features: Tensor) -> Tensor:
        parts = [head(part) for head, part in zip(self.heads, features.split(self.widths, 1), strict=True)]
        precise = torch.promote_types(parts[0].dtype, torch.float32)
        return torch.cat([F.normalize(part.to(precise), dim=1) for part in parts], 1)
