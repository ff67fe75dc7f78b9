"""What a sample may hold: one table says how each field is stored, cut, mirrored, read as numbers and shown."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

IMAGE = "image"
DEEP = 257  # steps of 16 bits in one of 8


@dataclass(frozen=True)
class Field:
    """One kind of field, (channels, H, W). Its value is stored / `steps` + `offset`."""

    channels: int
    dtype: torch.dtype
    steps: float
    show: Callable[[Tensor], Tensor]
    """Values (…, channels, H, W) as a picture (…, 3, H, W) in [0, 1]."""
    offset: float = 0.0
    coloured: bool = False
    """Colour operations change it."""
    nearest: bool = False
    """Resized by picking pixels, so that no value is invented across an edge; otherwise antialiased."""
    negated: int | None = None
    """The channel whose value changes its sign in a mirror."""
    unknown: bool = False
    """A pixel whose channels are all 0 was not measured."""

    def values(self, stored: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(…, channels, H, W) as floats; NaN where unknown."""
        x, steps = stored.to(dtype), self.steps
        if self.coloured and stored.dtype == torch.uint16:
            steps *= DEEP
        values = x / steps + self.offset if self.offset else x / steps
        return values.masked_fill((x == 0).all(-3, keepdim=True), torch.nan) if self.unknown else values

    def mirrored(self, values: Tensor) -> Tensor:
        """Left and right exchanged."""
        x = values.flip(-1)
        if self.negated is not None:
            x.select(-3, self.negated).neg_()
        return x

    def resized(self, stored: Tensor, size: tuple[int, int]) -> Tensor:
        """(N, channels, H, W) -> (N, channels, *size), of the same type."""
        if not self.nearest and stored.dtype == torch.uint16:  # which `interpolate` does not take
            return self.resized(stored.float(), size).round().to(torch.uint16)
        if not self.nearest:
            return F.interpolate(stored, size=size, mode="bilinear", antialias=True)
        rows, columns = (
            (2 * torch.arange(new, device=stored.device) + 1) * old // (2 * new)
            for new, old in zip(size, stored.shape[-2:], strict=True)
        )
        return stored.index_select(-2, rows).index_select(-1, columns)


def _grey(depth: Tensor) -> Tensor:
    """From the nearest (bright) to the farthest pixel of each picture; unknown ones are black."""
    known = depth.isfinite()
    low = depth.masked_fill(~known, torch.inf).amin((-2, -1), keepdim=True)
    high = depth.masked_fill(~known, -torch.inf).amax((-2, -1), keepdim=True)
    share = 1 - 0.8 * (depth - low) / (high - low).clamp_min(1e-9)
    return share.masked_fill(~known, 0).expand(*share.shape[:-3], 3, *share.shape[-2:])


def _class_colours(segmentation: Tensor) -> Tensor:
    """A colour for each class; 0, which mostly means unlabelled, is black."""
    # Multiples of irrational numbers never meet, and neighbouring classes lie far apart.
    turns = torch.tensor([0.618034, 0.754878, 0.569840], device=segmentation.device).view(3, 1, 1)
    colours = 0.25 + 0.75 * (segmentation * turns).frac()
    return torch.where(segmentation == 0, 0, colours)


def _picture(image: Tensor) -> Tensor:
    """The first three channels; the first as grey where there are fewer."""
    if image.shape[-3] < 3:
        return image[..., :1, :, :].expand(*image.shape[:-3], 3, *image.shape[-2:])
    return image[..., :3, :, :]


FIELDS: dict[str, Field] = {
    # Sets of images may have another number of channels, and 16 bits: see `Pixels`.
    IMAGE: Field(3, torch.uint8, 255, show=_picture, coloured=True),
    # In millimetres, so values are metres.
    "depth": Field(1, torch.uint16, 1000, show=_grey, nearest=True, unknown=True),
    # Unit vectors: x points right, y up, z to the camera. A mean across an edge would point nowhere.
    "normals": Field(
        3,
        torch.uint8,
        127.5,
        show=lambda normals: ((normals + 1) / 2).nan_to_num(0),
        offset=-1.0,
        nearest=True,
        negated=0,
        unknown=True,
    ),
    # Numbers of classes.
    "segmentation": Field(1, torch.uint16, 1, show=_class_colours, nearest=True),
}


class Pixels(NamedTuple):
    """How the images of a set are stored."""

    channels: int = 3
    deep: bool = False
    """With 16 bits."""

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint16 if self.deep else torch.uint8

    @property
    def field(self) -> Field:
        return replace(FIELDS[IMAGE], channels=self.channels, dtype=self.dtype)


RGB = Pixels()


def eight_bits(image: Tensor) -> Tensor:
    """uint8, of an image of either depth."""
    return (image.float() / DEEP).round().byte() if image.dtype == torch.uint16 else image
