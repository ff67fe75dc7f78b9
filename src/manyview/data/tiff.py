"""TIFFs that Pillow cannot read, or not in full: many channels, or several of more than 8 bits, read by tifffile."""

import logging
from typing import IO, Any

import numpy as np

from manyview.pixels import Numbers, refuse_bomb, without_opacity

_OPACITY = (1, 2)  # the kinds of extra samples that are one
_MOST_BYTES = 1 << 30  # of all channels of an image


def header(file: IO[bytes]) -> tuple[tuple[int, int], int, bool]:
    """(height, width) of the image when it is upright, its orientation, and whether it has more than 8 bits. Raises
    anything for a broken file."""
    with _opened(file) as tiff:
        page = tiff.pages[0]
        _refuse_bomb(page, 1)
        turn = _orientation(page)
        size = (page.imagewidth, page.imagelength) if turn >= 5 else (page.imagelength, page.imagewidth)
        return size, turn, page.bitspersample > 8


def read(file: IO[bytes], channels: int) -> tuple[Numbers, Numbers | None, int]:
    """Values (H, W, S) as stored, opacity (H, W, 1) in [0, 1] where there is one beside them, and the orientation.

    Where the file has as many pages as `channels`, of one size and with one channel each, they are the channels;
    otherwise the first page is the image. Raises anything for a broken file.
    """
    with _opened(file) as tiff:
        pages = _pages(tiff, channels)
        for page in pages:
            _refuse_bomb(page, len(pages))
        first = pages[0]
        planes = [page.asarray() for page in pages]
        if planes[0].ndim == 2:
            values = np.stack(planes, axis=2)
        else:
            values = planes[0] if first.planarconfig == 1 else np.moveaxis(planes[0], 0, 2)
        turn, count = _orientation(first), values.shape[2]
        extra = tuple(first.extrasamples)
        if extra and int(extra[-1]) in _OPACITY and count != channels and values.dtype.kind == "u":
            return *without_opacity(values), turn
        return values, None, turn


def _opened(file: IO[bytes]) -> Any:
    try:
        import tifffile
    except ModuleNotFoundError as error:
        raise ValueError(
            "such a TIFF (more than four channels, or several of more than 8 bits) needs `pip install 'manyview[tiff]'`"
        ) from error
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # odd metadata; what matters is told by exceptions
    file.seek(0)
    return tifffile.TiffFile(file)


def _pages(tiff: Any, channels: int) -> list[Any]:
    """Those that are the channels, or the first."""
    first = tiff.pages[0]
    if first.samplesperpixel != 1 or channels == 1:
        return [first]
    pages = [first]
    for number in range(1, channels + 1):
        try:
            page = tiff.pages[number]
        except IndexError:
            break
        pages.append(page)
    alike = all((page.shape, page.dtype) == (first.shape, first.dtype) for page in pages)
    return pages if len(pages) == channels and alike else [first]


def _refuse_bomb(page: Any, pages: int) -> None:
    refuse_bomb(page.imagewidth, page.imagelength)
    channels = page.samplesperpixel * pages
    if page.imagewidth * page.imagelength * channels * ((page.bitspersample + 7) // 8) > _MOST_BYTES:
        raise ValueError(f"{page.imagewidth} × {page.imagelength} pixels of {channels} channels: far too large")
    if page.imagedepth != 1:
        raise ValueError("it is a volume: save its slices as images or as channels")


def _orientation(page: Any) -> int:
    tag = page.tags.get(274)
    return int(tag.value) if tag is not None and tag.value in range(1, 9) else 1
