"""Images as numbers: what a file or a program hands over, in the channels and the depth that a sample stores."""

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

Numbers = np.ndarray[Any, np.dtype[Any]]
Range = tuple[float, float]

_ORIENTATION, _SAMPLE_FORMAT = 0x0112, 339  # tags of a TIFF and of EXIF data
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
_MOST = {torch.uint8: 255, torch.uint16: 65_535}
DEEP = ("I", "F")  # how the modes of Pillow begin that have more than 8 bits


class WrongChannels(ValueError):
    """An image has other channels than are asked for."""


def refuse_bomb(width: int, height: int) -> None:
    """A file of a few bytes may say that it unpacks to gigabytes."""
    if Image.MAX_IMAGE_PIXELS is not None and not 0 < width * height <= Image.MAX_IMAGE_PIXELS:
        raise ValueError(f"{width} × {height} pixels: a decompression bomb, or far too large")


def orientation_of(image: Image.Image) -> int:
    """What its EXIF data says of how it is to be turned: 1 is upright."""
    if image.format == "TIFF":  # Pillow turns these itself
        return 1
    if image.format == "PNG" and "exif" not in image.info:  # Pillow would decode the pixels in search of it
        return 1
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # broken metadata around good pixels
        return 1


def upright(values: Numbers, orientation: int) -> Numbers:
    """(H, W, S), turned as `orientation_of` says."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    return np.ascontiguousarray(values)


def numbers_of(image: Image.Image, channels: int) -> Numbers:
    """(H, W, S) as they are in the image, on white paper where it is transparent, unless opacity is asked for as one of
    the `channels`."""
    if image.mode.startswith(DEEP):
        values = np.asarray(image)
        unsigned = getattr(image, "tag_v2", {}).get(_SAMPLE_FORMAT, (1,)) == (1,)
        return (values.view(np.uint32) if values.dtype == np.int32 and unsigned else values)[..., None]
    if image.mode in ("LA", "RGBA") and len(image.mode) == channels:
        return np.array(image)
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        # Dropping alpha alone would bring out the colours that are hidden under transparent pixels.
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode in ("1", "L") and channels != 3:
        return np.array(image.convert("L"))[..., None]
    return np.array(image.convert("RGB"))


def without_opacity(values: Numbers) -> tuple[Numbers, Numbers]:
    """(H, W, S) unsigned numbers, of which the last is opacity, as (H, W, S − 1), and opacity (H, W, 1) in [0, 1]."""
    return values[..., :-1], values[..., -1:].astype(np.float32) / np.float32(np.iinfo(values.dtype).max)


def stored(
    values: Numbers,
    channels: int,
    dtype: torch.dtype,
    *,
    value_range: Range | None = None,
    opacity: Numbers | None = None,
) -> Tensor:
    """(H, W, S) of any type as images are stored: (C, H, W) uint8 or uint16, the channels last in memory.

    Black and white are 0 and 255 of 8 bits, 0 and 65,535 of other whole numbers, 0 and 1 of floating-point numbers, or
    the `value_range`; NaN is black. Grey is repeated for three channels, RGB gives its luma for one. `opacity`
    (H, W, 1) in [0, 1] shows white paper. Raises a ValueError that says what does not fit.
    """
    same = values.shape[2] == channels and opacity is None and value_range is None
    if not same or _MOST.get(dtype) != _most(values.dtype):
        shares = _shares(values, value_range)
        if opacity is not None:
            shares = shares * opacity + (1 - opacity)
        values = np.rint(_with_channels(shares, channels) * np.float32(_MOST[dtype]))
        values = values.astype(np.uint8 if dtype == torch.uint8 else np.uint16)
    return torch.from_numpy(np.require(values, requirements=["C", "W"])).permute(2, 0, 1)


def _most(dtype: np.dtype[Any]) -> int | None:
    """What white is in unsigned numbers of this type, where their type says it."""
    return int(np.iinfo(dtype).max) if dtype.kind == "u" and dtype.itemsize <= 2 else None


def _shares(values: Numbers, value_range: Range | None) -> Numbers:
    """From 0, which is black, to 1, which is white, in float32."""
    if values.dtype.kind not in "buif":
        raise ValueError(f"its pixels are {values.dtype}, which are no brightness")
    if values.dtype.kind == "b":
        values = values.astype(np.uint8) * 255
    shares: Numbers
    if value_range is not None:
        low, high = value_range
        shares = (values.astype(np.float64) - low) / (high - low)
    elif values.dtype.kind == "f":
        shares = values
        _refuse_beyond(values, 1, "floating-point numbers")
    else:
        most = _most(values.dtype) or _MOST[torch.uint16]
        _refuse_beyond(values, most, "whole numbers")
        shares = values.astype(np.float32) / np.float32(most)
    return np.nan_to_num(shares, nan=0.0).clip(0, 1).astype(np.float32)


def _refuse_beyond(values: Numbers, most: int, kind: str) -> None:
    low, high = np.nanmin(values), np.nanmax(values)
    if low < 0 or high > most:
        raise ValueError(
            f"its pixels are {kind} from {low:g} to {high:g}, not from 0 to {most}: say which are black and "
            "white with --value-range LOW HIGH, or convert it to 8 or 16 bits"
        )


def _with_channels(shares: Numbers, channels: int) -> Numbers:
    count = shares.shape[2]
    if count == channels:
        return shares
    if (count, channels) == (1, 3):
        return np.repeat(shares, 3, axis=2)
    if (count, channels) == (3, 1):
        return (shares @ _LUMA)[..., None]
    raise WrongChannels(
        f"it has {count} {'channel' if count == 1 else 'channels'}, not {channels}: use --channels {count}"
    )
