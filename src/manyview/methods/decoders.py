"""The networks of predictive learning: a decoder for each direction from view to view."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders import Towers
from manyview.precision import at_least_float32

START, WIDEST = 4, 256  # side and channels of the map that a decoder begins with


class Decoder(nn.Module):
    """Features (N, F) to a view (N, c, size, size): maps that double their sides, the last one brought to the size."""

    def __init__(self, features: int, channels: int) -> None:
        super().__init__()
        self.start = nn.Linear(features, WIDEST * START**2)
        self.widen = nn.ModuleList(
            nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.ReLU(inplace=True))
            for inner, outer in ((WIDEST, 128), (128, 64), (64, 32))
        )
        self.end = nn.Conv2d(32, channels, 3, padding=1)

    def forward(self, features: Tensor, size: int) -> Tensor:
        x = self.start(features).unflatten(1, (WIDEST, START, START))
        for block in self.widen:
            x = block(F.interpolate(x, scale_factor=2.0))
        return at_least_float32(self.end(F.interpolate(x, size=(size, size), mode="bilinear")))


class WithDecoders(nn.Module):
    """The networks of an encoder and the decoders behind them, in one call: the views, and what was made of them in
    each direction."""

    def __init__(self, towers: Towers, decoders: nn.ModuleList, directions: list[tuple[str, str]]) -> None:
        super().__init__()
        self.towers, self.decoders, self.directions = towers, decoders, directions

    def forward(self, fields: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        views = self.towers.views(fields)
        features = {view: self.towers.networks[view](images) for view, images in views.items()}
        size = next(iter(fields.values())).shape[-1]
        return views, *(
            decoder(features[a], size) for decoder, (a, _) in zip(self.decoders, self.directions, strict=True)
        )
