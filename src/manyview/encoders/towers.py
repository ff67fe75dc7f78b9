"""One network for each view of a sample, such as its luminance, its colours and its depth: CMC's encoders."""

import copy
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from manyview.encoders.layers import layer_features
from manyview.fields import FIELDS
from manyview.views.named import fields_of, named_views, split_views


class Normalise(nn.Module):
    """Normalisation by mean and standard deviation of each channel; unknown values become 0, the mean.

    The statistics are measured once, before training, and are stored with the weights.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int, *, unknown: bool) -> None:
        super().__init__()
        self.unknown = unknown
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))

    def forward(self, view: Tensor) -> Tensor:
        x = (view.to(self.mean.dtype) - self.mean) / self.std
        return x.nan_to_num(0.0) if self.unknown else x


class Towers(nn.Module):
    """Fields of samples in, features by view out (CMC, §4.1). `views` are words of `named_views`."""

    def __init__(self, views: str, build: Callable[[int], nn.Module], width: Callable[[nn.Module], int]) -> None:
        """`build` makes the network of a view with so many channels, `width` tells how many features one gives."""
        super().__init__()
        self.named = named_views(views)
        self.fields = fields_of(self.named)
        self.networks = nn.ModuleDict({name: build(len(view.channels)) for name, view in self.named.items()})
        self.normalise = nn.ModuleDict(
            {
                name: Normalise(len(view.channels), unknown=FIELDS[view.field].unknown)
                for name, view in self.named.items()
            }
        )
        self.widths = {name: width(network) for name, network in self.networks.items()}
        self.num_features = sum(self.widths.values())
        self._width = width

    def views(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The normalised views (N, c, h, w), by name, of fields (N, c, h, w) as values."""
        return {name: self.normalise[name](view) for name, view in split_views(fields, self.named).items()}

    def only(self, names: Iterable[str]) -> "Towers":
        """A copy with these views alone."""
        names = list(names)
        networks = iter([copy.deepcopy(self.networks[name]) for name in names])
        part = Towers(",".join(self.named[name].word for name in names), lambda _: next(networks), self._width)
        part.normalise.load_state_dict(
            {key: value for key, value in self.normalise.state_dict().items() if key.partition(".")[0] in names}
        )
        return part

    def forward(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.networks[name](view) for name, view in self.views(fields).items()}

    def layers(
        self, fields: Mapping[str, Tensor], names: Iterable[str], keep: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """Outputs of the named layers, those of the views one after the other along the channels."""
        names = list(names)
        found = [
            layer_features(self.networks[view], images, names, keep=keep) for view, images in self.views(fields).items()
        ]
        return {name: torch.cat([layers[name] for layers in found], 1) for name in names}
