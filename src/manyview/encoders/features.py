"""A backbone with normalisation inside: frozen, for evaluation, or trainable, for fine-tuning."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from manyview.encoders.backbones import Norm, Stem, build_backbone, feature_width, once_trained, takes_any_size
from manyview.encoders.encoder import Encoder
from manyview.encoders.layers import find_layers, layer_features, layer_maps
from manyview.encoders.preparation import Picture, prepared
from manyview.encoders.towers import Towers
from manyview.errors import UserError
from manyview.fields import FIELDS, IMAGE
from manyview.precision import at_least_float32
from manyview.views.named import fields_of, named_views


@dataclass(frozen=True)
class Card:
    """The metadata of an encoder file: enough to build the network and to prepare its images."""

    backbone: str
    stem: Stem
    norm: Norm
    image_size: int
    mean: tuple[float, ...]
    """Of images, one number for each channel, as in `std`."""
    std: tuple[float, ...]
    split: str | None = None

    @property
    def in_channels(self) -> int:
        """C."""
        return len(self.mean)

    @property
    def fields(self) -> tuple[str, ...]:
        """What is needed of a sample."""
        return (IMAGE,) if self.split is None else fields_of(named_views(self.split))


class MapShape(NamedTuple):
    """Of a feature map."""

    channels: int
    stride: float
    """Pixels of the image for one of the map, along a side."""


class FeatureEncoder(nn.Module):
    """Images in, features out: the backbone without its head. What frozen and trainable encoders share.

    One that needs more than images takes the fields of samples, by name.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, card: Card) -> None:
        super().__init__()
        self.card = card
        self.image_size = card.image_size
        self.num_features = feature_width(backbone)  # F
        self.backbone = backbone
        weight = next(backbone.parameters())
        self.register_buffer("mean", weight.new_tensor(card.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", weight.new_tensor(card.std).view(-1, 1, 1), persistent=False)

    def forward(self, samples: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Images (N, C, H, W), uint8, uint16 or float in [0, 1], to features (N, F) in float32. Other fields come as
        they are stored, or as floats: depth in metres, normals in [-1, 1]; NaN is unknown."""
        return self.of_values(self._checked(samples))

    def of_values(self, fields: Mapping[str, Tensor]) -> Tensor:
        """The same of floats by name, as they come: without the checks, which a traced graph could not keep."""
        found = self.backbone(self._normalised(fields))
        return at_least_float32(torch.cat(list(found.values()), 1) if isinstance(found, dict) else found)

    def layers(
        self,
        samples: Tensor | Mapping[str, Tensor],
        names: Iterable[str],
        *,
        keep: Callable[[Tensor], Tensor] = torch.clone,
    ) -> dict[str, Tensor]:
        """Outputs of the named layers of the backbone for such samples: see `layer_features`."""
        x, backbone = self._normalised(self._checked(samples)), self.backbone
        if isinstance(backbone, Towers):
            found = backbone.layers(x, names, keep)
        else:
            found = layer_features(backbone, x, names, keep=keep)
        return {name: at_least_float32(output) for name, output in found.items()}

    def check_layers(self, names: Iterable[str]) -> None:
        """Raises a UserError for names that `layers` does not know."""
        backbone = self.backbone
        if isinstance(backbone, Towers):
            backbone = next(iter(backbone.networks.values()))  # they all have the same layers
        find_layers(backbone, names)

    def maps(self, samples: Tensor | Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
        """Feature maps (N, c, h, w) of the named layers, for dense tasks; those of a transformer are its patches. Where
        each view has a network, the view's name stands before the layer's: `L.layer4`."""
        x, backbone = self._normalised(self._checked(samples)), self.backbone
        if not isinstance(backbone, Towers):
            return layer_maps(backbone, x, names)
        names, by_view = list(names), dict[str, list[str]]()
        for name in names:
            view, _, layer = name.partition(".")
            if view not in backbone.named:
                raise UserError(f"{name} names no view: begin it with one of {', '.join(backbone.named)}, as L.layer4")
            by_view.setdefault(view, []).append(layer)
        views = backbone.views(x)
        found = {view: layer_maps(backbone.networks[view], views[view], layers) for view, layers in by_view.items()}
        return {name: found[name.partition(".")[0]][name.partition(".")[2]] for name in names}

    def map_shapes(self, names: Iterable[str]) -> dict[str, MapShape]:
        """What `maps` gives of images of the encoder's own size."""
        side, place = self.image_size, self.mean.device
        blank = {name: torch.zeros(1, self._channels(name), side, side, device=place) for name in self.card.fields}
        with torch.no_grad():  # a copy, so that statistics and modes of this one stay as they are
            maps = copy.deepcopy(self).eval().maps(blank, names)
        return {name: MapShape(each.shape[1], side / each.shape[2]) for name, each in maps.items()}

    def _checked(self, samples: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The values of the fields that are needed."""
        needed = self.card.fields
        if isinstance(samples, Tensor):
            if needed != (IMAGE,):
                raise ValueError(f"this encoder needs {', '.join(needed)}: give a mapping of fields by name")
            samples = {IMAGE: samples}
        if absent := [name for name in needed if name not in samples]:
            raise ValueError(f"this encoder needs {', '.join(needed)}: {', '.join(absent)} is not given")
        return {name: self._values(name, samples[name]) for name in needed}

    def _normalised(self, fields: Mapping[str, Tensor]) -> Any:
        """Images of a plain backbone, fields by name of towers."""
        x = dict(fields)
        if IMAGE in x:
            x[IMAGE] = (x[IMAGE] - self.mean) / self.std
        return x if isinstance(self.backbone, Towers) else x[IMAGE]

    def _values(self, name: str, stored: Tensor) -> Tensor:
        self._check(name, stored)
        dtype = self.mean.dtype
        return stored.to(dtype) if stored.is_floating_point() else FIELDS[name].values(stored, dtype)

    def _check(self, name: str, images: Tensor) -> None:
        channels = self._channels(name)
        if images.ndim != 4 or images.shape[1] != channels:
            raise ValueError(f"{name}s must be (N, {channels}, H, W), not {tuple(images.shape)}")
        side = self.image_size
        if images.shape[2:] != (side, side) and not takes_any_size(self.card.backbone):
            raise ValueError(
                f"{self.card.backbone} takes images of {side}×{side}, not {tuple(images.shape[2:])}: resize them"
            )
        deep = FIELDS[name].coloured and images.dtype == torch.uint16
        if deep or images.dtype == FIELDS[name].dtype or not images.numel():
            return
        if not images.is_floating_point():
            raise TypeError(f"{name}s must be {FIELDS[name].dtype} or float, not {images.dtype}")
        if name != IMAGE:
            return
        low, high = (float(bound) for bound in images.detach().aminmax())
        # A float resize may overshoot by a rounding error; NaN fails both comparisons.
        if not (low >= -1e-3 and high <= 1 + 1e-3):
            raise ValueError(
                f"float images must lie in [0, 1], not [{low:.3g}, {high:.3g}]: give uint8, or divide by 255, "
                "and leave the normalisation to the encoder"
            )

    def _channels(self, field: str) -> int:
        return self.card.in_channels if field == IMAGE else FIELDS[field].channels


class FrozenEncoder(FeatureEncoder):
    """Has no gradients and stays in eval mode."""

    def __init__(self, backbone: nn.Module, card: Card) -> None:
        super().__init__(backbone, card)
        self.requires_grad_(False)
        self.eval()

    @classmethod
    def of(cls, encoder: Encoder, *, image_size: int, mean: Sequence[float], std: Sequence[float]) -> "FrozenEncoder":
        """A frozen copy of an encoder that is being trained."""
        return cls(copy.deepcopy(encoder.backbone), card_of(encoder, image_size, mean, std))

    def only(self, views: Sequence[str]) -> "FrozenEncoder":
        """An encoder with the networks of these views alone."""
        words, towers = ",".join(views), self.backbone
        if not isinstance(towers, Towers):
            raise UserError(f"--view {words}: this encoder sees whole images; leave it out")
        unknown = [view for view in views if view not in towers.named]
        if unknown or not views:
            raise UserError(f"--view {words}: choose some of the encoder's views {', '.join(towers.named)}")
        part = towers.only(views)
        return FrozenEncoder(part, replace(self.card, split=",".join(view.word for view in part.named.values())))

    def forward(self, samples: Tensor | Mapping[str, Tensor] | Picture | Sequence[Picture]) -> Tensor:
        """As of any encoder; also of PIL images and of arrays (H, W, C), one or a list: see `prepared`."""
        if not isinstance(samples, Tensor | Mapping):
            samples = prepared(samples, self.image_size, self.card.in_channels).to(self.mean.device)
        return super().forward(samples)

    def train(self, mode: bool = True) -> "FrozenEncoder":
        return super().train(False)


class TrainableEncoder(FeatureEncoder):
    """To be trained on: all weights have gradients, and `train()` and `eval()` do what they do in any network."""

    def __init__(self, backbone: nn.Module, card: Card) -> None:
        super().__init__(backbone, card)
        self.requires_grad_(True)
        self.train()

    def frozen(self) -> FrozenEncoder:
        """A copy as it is now, to be evaluated."""
        return FrozenEncoder(copy.deepcopy(self.backbone), self.card)


def card_of(encoder: Encoder, image_size: int, mean: Sequence[float], std: Sequence[float]) -> Card:
    if not len(mean) == len(std) == encoder.in_channels:
        raise ValueError(f"an encoder of {encoder.in_channels} channels needs as many means and deviations")
    config = encoder.config
    means, deviations = tuple(map(float, mean)), tuple(map(float, std))
    return Card(config.backbone, config.stem, once_trained(config.norm), image_size, means, deviations, config.split)


def network_of(card: Card) -> nn.Module:
    """The network that a card describes, with random weights."""
    return build_backbone(
        card.backbone,
        stem=card.stem,
        norm=card.norm,
        image_size=card.image_size,
        in_channels=card.in_channels,
        split=card.split,
    )
