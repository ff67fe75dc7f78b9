"""A picture of samples and their views, to see what a method is shown."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from manyview.stack import COLOURS
from manyview.views.augment import Augment
from manyview.views.named import named_views, split_views

__all__ = ["gallery", "picture", "png"]

Pixels = npt.NDArray[np.uint8]

_MARGIN = 8
_FONT = 14
_SMALLEST = 96  # smaller tiles are enlarged to about this, pixel by pixel


def picture(
    images: Sequence[Tensor],
    augment: Augment,
    *,
    index: Sequence[int] | None = None,
    names: Sequence[str] = (),
    epoch: int = 0,
    tile: int | None = None,
    split: str | None = None,
) -> Pixels:
    """One row for each sample (C, H, W) uint8: the original and its views, de-normalised -> (height, width, 3) uint8.

    With the samples' numbers as `index` (by default 0, 1, …) the views are the ones that training sees in `epoch`.
    `tile` is the side of a view on the picture; by default views are shown as they are, or enlarged if tiny. `split`
    are words of `named_views`: then each view is followed by those that it splits into, in false colours.
    """
    numbers = list(index) if index is not None else list(range(len(images)))
    crops = torch.stack([augment.crop(image, number, epoch) for image, number in zip(images, numbers, strict=True)])
    views = augment.apply(crops, augment.plan(torch.tensor(numbers), epoch)).transpose(0, 1)
    mean, std = (torch.tensor(channels).view(-1, 1, 1) for channels in (augment.mean, augment.std))
    shown, headings = _with_splits((views * std + mean).clamp(0, 1), split)
    shown = (shown * 255).round().to(torch.uint8)
    side = tile or augment.size * max(1, round(_SMALLEST / augment.size))
    rows = [
        [_fit(image[:COLOURS], side), *(_fit(view, side) for view in its_views)]
        for image, its_views in zip(images, shown, strict=True)
    ]
    return np.asarray(_sheet(rows, ["original", *headings], names or [f"sample {number}" for number in numbers], side))


def gallery(
    images: Sequence[Tensor],
    augment: Augment,
    path: Path | str,
    *,
    index: Sequence[int] | None = None,
    names: Sequence[str] = (),
    epoch: int = 0,
    split: str | None = None,
) -> None:
    """Save the `picture` as a PNG file."""
    Path(path).write_bytes(png(picture(images, augment, index=index, names=names, epoch=epoch, split=split)))


def _with_splits(views: Tensor, split: str | None) -> tuple[Tensor, list[str]]:
    """(N, V, C, h, w) in [0, 1], the colours of each view followed by what it is split into, and their names."""
    tiles, headings = [], []
    for number, view in enumerate(views.unbind(1), 1):
        tiles.append(view[:, :COLOURS])
        headings.append(f"view {number}")
        if split is not None:
            for name, channels in split_views(view, named_views(split)).items():
                tiles.append(_false_colours(channels))
                headings.append(name)
    return torch.stack(tiles, 1), headings


def _false_colours(channels: Tensor) -> Tensor:
    """(N, c, h, w), from the least to the most of each channel: one as grey, two as red and blue; three are colours."""
    if channels.shape[1] == 3:
        return channels

    low, high = (bound(channels, (0, 2, 3), keepdim=True) for bound in (torch.amin, torch.amax))
    shares = (channels - low) / (high - low).clamp_min(1e-12)
    if shares.shape[1] == 1:
        return shares.expand(-1, 3, -1, -1)
    first, second = shares.unbind(1)
    return torch.stack((first, torch.full_like(first, 0.5), second), 1)


def png(pixels: Pixels) -> bytes:
    """A picture as the bytes of a PNG file, to be embedded in a page."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _fit(image: Tensor, side: int) -> Image.Image:
    """Scaled to fit into a square; pixels stay visible where the scale is a whole number."""
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(
        size, Image.Resampling.NEAREST if scale >= 1 and scale == int(scale) else Image.Resampling.LANCZOS
    )


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """The end of a path says more than its beginning."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength("…" + text) > width:
        text = text[1:]
    return "…" + text


def _sheet(rows: list[list[Image.Image]], headings: list[str], names: Sequence[str], side: int) -> Image.Image:
    font = ImageFont.load_default(_FONT)
    line = 2 * _FONT
    step = side + _MARGIN
    sheet = Image.new("RGB", (_MARGIN + step * len(headings), line + (step + line) * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    for column, heading in enumerate(headings):
        middle = _MARGIN + step * column + side // 2
        draw.text((middle, line // 2), _shortened(heading, font, side), font=font, fill="black", anchor="mm")
    for row, (tiles, name) in enumerate(zip(rows, names, strict=True)):
        top = line + (step + line) * row
        for column, tile in enumerate(tiles):
            left = _MARGIN + step * column
            sheet.paste(tile, (left + (side - tile.width) // 2, top + (side - tile.height) // 2))
        label = _shortened(name, font, sheet.width - 2 * _MARGIN)
        draw.text((_MARGIN, top + side + line // 2), label, font=font, fill="dimgray", anchor="lm")
    return sheet
