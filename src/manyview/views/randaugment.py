"""RandAugment: a few random operations on each image, all of the same magnitude (arXiv 1909.13719)."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyview import counter
from manyview.errors import UserError

Operation = Callable[[Tensor, int], Tensor]

_TAG = 0x72616E64617567  # "randaug": keeps these draws apart from everybody else's
_FULL = 30  # the largest magnitude


def _torchvision(function: str, x: Tensor, *settings: Any, **more: Any) -> Tensor:
    """torchvision is imported here, because most runs do without it."""
    from torchvision.transforms.v2 import functional

    changed: Tensor = getattr(functional, function)(x, *settings, **more)
    return changed


def _affine(x: Tensor, *, translate: tuple[int, int] = (0, 0), shear: tuple[float, float] = (0.0, 0.0)) -> Tensor:
    """A shear, by a slope, holds the first row or column still."""
    angles = [math.degrees(math.atan(slope)) for slope in shear]
    settings = {"translate": list(translate), "scale": 1.0, "shear": angles, "center": [0.0, 0.0]}
    return _torchvision("affine", x, angle=0.0, **settings)


def _scaled(largest: float, magnitude: int) -> float:
    # Torchvision takes its magnitudes from such a line: with other last bits some pixels would round differently.
    return math.copysign(float(torch.linspace(0, largest, _FULL + 1)[abs(magnitude)]), magnitude)


def _pixels(extent: int, magnitude: int) -> int:
    return int(_scaled(150 / 331 * extent, magnitude))


def _factor(magnitude: int) -> float:
    return 1 + _scaled(0.9, magnitude)


# What torchvision's RandAugment does, in its order; a negative magnitude is the other direction where there is one.
OPERATIONS: dict[str, Operation] = {
    "identity": lambda x, m: x,
    "shear-x": lambda x, m: _affine(x, shear=(_scaled(0.3, m), 0.0)),
    "shear-y": lambda x, m: _affine(x, shear=(0.0, _scaled(0.3, m))),
    "translate-x": lambda x, m: _affine(x, translate=(_pixels(x.shape[-1], m), 0)),
    "translate-y": lambda x, m: _affine(x, translate=(0, _pixels(x.shape[-2], m))),
    "rotate": lambda x, m: _torchvision("rotate", x, angle=_scaled(30, m)),
    "brightness": lambda x, m: _torchvision("adjust_brightness", x, _factor(m)),
    "colour": lambda x, m: _torchvision("adjust_saturation", x, _factor(m)),
    "contrast": lambda x, m: _torchvision("adjust_contrast", x, _factor(m)),
    "sharpness": lambda x, m: _torchvision("adjust_sharpness", x, _factor(m)),
    "posterise": lambda x, m: _torchvision("posterize", x, bits=round(8 - 4 * abs(m) / _FULL)),
    "solarise": lambda x, m: _torchvision("solarize", x, 255 * float(torch.linspace(1, 0, _FULL + 1)[abs(m)])),
    "autocontrast": lambda x, m: _torchvision("autocontrast", x),
    "equalise": lambda x, m: _torchvision("equalize", x),
}


class RandPlan(NamedTuple):
    """What is done to images, one column after the other."""

    operation: Tensor  # (…, operations) numbers in `OPERATIONS`
    backwards: Tensor  # (…, operations) bool: with the magnitude negated


class RandAugment:
    """`operations` of the 14 operations, drawn with replacement. Images that draw the same one are worked on together.

    augment = RandAugment(operations=2, magnitude=9, seed=0)
    plan = augment.plan(index, epoch, views=1)
    images = augment.apply(images, RandPlan(*(field[:, 0] for field in plan)))
    """

    def __init__(self, *, operations: int = 2, magnitude: int = 9, seed: int) -> None:
        if not 0 <= magnitude <= _FULL:
            raise UserError(f"RandAugment's magnitude {magnitude} must lie between 0 and {_FULL}")
        self.operations, self.magnitude, self.seed = operations, magnitude, seed

    def plan(self, index: Tensor, epoch: int, views: int) -> RandPlan:
        """For all views of the samples `index` (N,): fields (N, V, operations)."""
        view, draw = (torch.arange(count, device=index.device) for count in (views, 2 * self.operations))
        uniform = counter.uniform(self.seed, _TAG, epoch, view.view(-1, 1), index.view(-1, 1, 1), draw)
        operation, direction = uniform.tensor_split(2, -1)
        return RandPlan((operation * len(OPERATIONS)).long(), direction < 0.5)

    def apply(self, images: Tensor, plan: RandPlan) -> Tensor:
        """uint8 (N, 3, h, w) -> uint8 (N, 3, h, w)."""
        operations = list(OPERATIONS.values())
        x = images.clone()
        for operation, backwards in zip(plan.operation.cpu().unbind(-1), plan.backwards.cpu().unbind(-1), strict=True):
            course = 2 * operation + backwards.long()
            for chosen in course.unique().tolist():
                members = (course == chosen).nonzero().squeeze(1).to(x.device)
                magnitude = -self.magnitude if chosen % 2 else self.magnitude
                x[members] = operations[chosen // 2](x[members], magnitude)
        return x
