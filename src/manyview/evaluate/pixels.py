"""Raw pixels as an encoder: the baseline that knows nothing but how an image looks."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview.encoders import Card, FrozenEncoder

SIDE = 16  # px
NAME = "pixels"


class Pixels(nn.Module):
    """Images (N, C, H, W) averaged down to at most 16×16, as vectors. By 32×32 neighbours and probes found no more on
    `scenes`, and a probe took eight times as long."""

    def __init__(self, channels: int, image_size: int) -> None:
        super().__init__()
        self.side = min(SIDE, image_size)
        self.num_features = channels * self.side**2
        self.place = nn.Parameter(torch.zeros(()))  # a network without a parameter would not know its device

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.side).flatten(1)


def pixels_for(encoder: FrozenEncoder) -> FrozenEncoder:
    """The pixels that `encoder` sees: the same crop of the same size, normalised alike."""
    card = encoder.card
    found = Card(NAME, "standard", "batch", card.image_size, card.mean, card.std)
    return FrozenEncoder(Pixels(card.in_channels, card.image_size), found).to(encoder.mean.device, encoder.mean.dtype)
