"""The random parameters of views, drawn before any pixel is read."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

JITTER = ("brightness", "contrast", "saturation", "hue")
ORDERS = torch.tensor(list(itertools.permutations(range(len(JITTER)))))  # (24, 4) of numbers in JITTER


class Plan(NamedTuple):
    """The random parameters of views: leading shape (N, V), independent of the images' sizes."""

    area: Tensor  # (N, V, tries) share of the image's area
    ratio: Tensor  # (N, V, tries) logarithm of width over height
    position: Tensor  # (N, V, 2) of the crop in the room that is left: 0 is top or left, 1 is bottom or right
    flip: Tensor
    jitter: Tensor
    order: Tensor  # of the jitter's operations, as a number in `ORDERS`
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    hue: Tensor
    grey: Tensor
    blur: Tensor
    sigma: Tensor
    solarise: Tensor
    operation: Tensor  # (N, V, operations) of RandAugment, as a number in its list; none unless the policy has it
    backwards: Tensor  # (N, V, operations) bool: in the other direction

    def map(self, function: Callable[[Tensor], Tensor]) -> "Plan":
        return Plan(*map(function, self))
