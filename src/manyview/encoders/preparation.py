"""How images are resized and cut for an encoder, and what else than tensors it takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from manyview.fields import FIELDS, IMAGE, Field, Pixels
from manyview.pixels import Numbers, WrongChannels, numbers_of, orientation_of, stored, upright

Picture = Image.Image | Numbers

SMALL = 96  # px


@dataclass(frozen=True)
class Preparation:
    """How images of a source whose images are `stored` high and wide (None: various) become size×size."""

    stored: tuple[int, int] | None
    size: int

    @property
    def whole(self) -> bool:
        """Small squares show one object from edge to edge: nothing is cropped away."""
        return self.stored is not None and self.stored[0] == self.stored[1] <= SMALL

    @property
    def shorter(self) -> int:
        return round(self.size * 8 / 7)  # 256 for 224

    def __str__(self) -> str:
        target = f"{self.size}×{self.size}"
        if self.stored == (self.size, self.size):
            return f"{target} as stored"
        if self.stored is not None and self.whole:
            return f"resized from {self.stored[0]}×{self.stored[1]} to {target}"
        words = f"shorter side resized to {self.shorter}, centre crop {target}"
        return words if self.stored else f"{words} ({target} as stored)"

    def __call__(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields (N, c, H, W) -> (N, c, size, size), of the same types."""
        return {name: self._prepared(images, FIELDS[name]) for name, images in fields.items()}

    def _prepared(self, images: Tensor, field: Field) -> Tensor:
        height, width = images.shape[-2:]
        if self.whole or (height, width) == (self.size, self.size):
            return field.resized(images, (self.size, self.size))
        # Only the middle is kept, and a thin strip enlarged fills the memory.
        images = _centre(images, min(height, 4 * width), min(width, 4 * height))
        height, width = (int(self.shorter * side / min(images.shape[-2:])) for side in images.shape[-2:])
        return _centre(field.resized(images, (height, width)), self.size, self.size)


def _centre(images: Tensor, height: int, width: int) -> Tensor:
    top, left = (round((had - kept) / 2) for had, kept in zip(images.shape[-2:], (height, width), strict=True))
    return images[..., top : top + height, left : left + width]


def prepared(pictures: Picture | Sequence[Picture], size: int, channels: int) -> Tensor:
    """Images (N, C, size, size) in [0, 1], of one picture or several: PIL images, or arrays (H, W, C) of 8 or 16 bits.
    They are turned upright, resized and cut as in an evaluation."""
    several: Sequence[Any] = pictures if isinstance(pictures, list | tuple) else [pictures]
    if not several:
        raise ValueError("no image is given: an encoder takes one or more")
    images = [_stored(picture, channels) for picture in several]
    return torch.cat([_of_size(image, size) for image in images])


def _stored(picture: Any, channels: int) -> Tensor:
    """(C, H, W)."""
    if isinstance(picture, Image.Image):
        values = upright(numbers_of(picture, channels), orientation_of(picture))
    elif isinstance(picture, np.ndarray) and picture.ndim in (2, 3) and picture.dtype in (np.uint8, np.uint16):
        values = picture.reshape(*picture.shape[:2], -1)
    else:
        what = f"{picture.dtype} {picture.shape}" if isinstance(picture, np.ndarray) else type(picture).__name__
        raise TypeError(
            "an encoder takes tensors (N, C, H, W), PIL images, arrays (H, W, C) of uint8 or uint16, or a list of "
            f"images or arrays, not {what}"
        )
    deep = values.dtype != np.uint8
    try:
        return stored(values, channels, Pixels(channels, deep).dtype)
    except WrongChannels as error:
        raise ValueError(f"this encoder takes images of {channels} channels, not of {values.shape[2]}") from error


def _of_size(image: Tensor, size: int) -> Tensor:
    """(C, H, W) -> (1, C, size, size) in [0, 1]."""
    height, width = image.shape[-2:]
    cut = Preparation((height, width), size)({IMAGE: image[None]})[IMAGE]
    return FIELDS[IMAGE].values(cut)
