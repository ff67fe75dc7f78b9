"""A picture of samples and the views that a method trains on."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from manyview.fields import FIELDS
from manyview.views.augment import Augment
from manyview.views.named import named_views, split_views

Pixels = npt.NDArray[np.uint8]

_MARGIN = 8
_FONT = 14
_SMALLEST = 96  # smaller tiles are enlarged to about this, pixel by pixel


def picture(
    samples: Sequence[Mapping[str, Tensor]],
    augment: Augment,
    *,
    index: Sequence[int] | None = None,
    names: Sequence[str] = (),
    epoch: int = 0,
    tile: int | None = None,
    split: str | None = None,
) -> Pixels:
    """One row for each sample: its fields (c, H, W) and their views, de-normalised -> (height, width, 3) uint8.

    With the samples' numbers as `index` (by default 0, 1, …) the views are the ones that training sees in `epoch`.
    `tile` is the side of a view on the picture; by default views are shown as they are, or enlarged if tiny. `split`
    are words of `named_views`: then each view is followed by those that it splits into, in false colours.
    """
    numbers = list(index) if index is not None else list(range(len(samples)))
    columns = _columns(augment.values(augment.views_of(samples, numbers, epoch)), augment, split)
    side = tile or augment.size * max(1, round(_SMALLEST / augment.size))
    rows = [
        [
            *(_fit(FIELDS[name].show(FIELDS[name].values(field)), side) for name, field in sample.items()),
            *(_fit(column[row], side) for column in columns.values()),
        ]
        for row, sample in enumerate(samples)
    ]
    headings = [*samples[0], *columns]
    return np.asarray(_sheet(rows, headings, names or [f"sample {number}" for number in numbers], side))


def _columns(views: Mapping[str, Tensor], augment: Augment, split: str | None) -> dict[str, Tensor]:
    """Pictures (N, 3, h, w) by heading: of each view its fields, followed by what it is split into."""
    columns: dict[str, Tensor] = {}
    number = 0
    named = {name: view for name, view in named_views(split).items() if view.space is not None} if split else {}
    for group in augment.groups:
        for view in range(group.views):
            number += 1
            fields = {name: views[group(name)][view] for name in augment.fields}
            columns |= {f"{name} {number}": FIELDS[name].show(values) for name, values in fields.items()}
            parts = split_views(fields, named)
            columns |= {f"{name} {number}": _false_colours(channels) for name, channels in parts.items()}
    return columns


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
    """A picture (3, h, w) in [0, 1], fitted into a square; pixels stay visible where the scale is a whole number."""
    pixels = image.permute(1, 2, 0).mul(255).round().to(torch.uint8)
    picture = Image.fromarray(pixels.contiguous().numpy())
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(
        size, Image.Resampling.NEAREST if scale >= 1 and scale == int(scale) else Image.Resampling.LANCZOS
    )


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """Shortens a long path to its end, which tells more than its beginning."""
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
