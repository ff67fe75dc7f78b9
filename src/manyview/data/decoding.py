"""Images in files: what their headers say, and their pixels as a sample stores them. Any file may be broken."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError, features
from PIL.ImageFile import ImageFile
from torch import Tensor

from manyview.data import tiff
from manyview.data.source import Unreadable
from manyview.errors import one_line
from manyview.fields import RGB, Pixels
from manyview.pixels import (
    DEEP,
    Numbers,
    Range,
    numbers_of,
    orientation_of,
    refuse_bomb,
    stored,
    upright,
    without_opacity,
)

ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)
MORE_ENDINGS = {"AVIF": (".avif",), "HEIF": (".heic", ".heif", ".hif")}  # read where a plug-in is there
# Images all the same, which are counted where they are passed over.
OTHER_ENDINGS = (
    *(".jp2", ".j2k", ".jpx", ".jxl", ".svg", ".psd", ".ico", ".tga", ".exr", ".hdr", ".eps", ".dcm", ".czi", ".nd2"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".pef"),
)
SHALLOW = (".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif", ".pbm")  # have 8 bits, and one page
TIFFS = (".tif", ".tiff")
# Named, because Pillow would otherwise try everything it knows, PostScript interpreters included.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM", "GIF")
_TO_RGB = 3  # torchvision's ImageReadMode.RGB
# How Pillow takes the high byte of 16 bits, and how it takes the low one: as if they were in the other order.
_NATIVE = "16L" if sys.byteorder == "little" else "16B"
_LOW_BYTES = {
    f"{mode};{high}": f"{mode};{low}"
    for mode in ("RGB", "RGBA")
    for high, low in (("16B", "16L"), ("16L", "16B"), ("16N", "16B" if _NATIVE == "16L" else "16L"))
}
_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_PNG_BITS = 24  # the byte that says how many a channel has
_BITS, _SAMPLES, _DEPTH = 258, 277, 32_997  # tags of a TIFF

# Pillow warns of odd metadata; all that matters here is whether the pixels can be had. So it is with channels that are
# too many for it.
warnings.filterwarnings("ignore", module=r"PIL\.")
logging.getLogger("PIL.TiffImagePlugin").setLevel(logging.CRITICAL)


class Header(NamedTuple):
    """What a file says of its image."""

    size: tuple[int, int]  # (height, width), upright
    orientation: int = 1
    deep: bool = False  # more than 8 bits


@cache
def plug_ins() -> tuple[str, ...]:
    """The formats of `MORE_ENDINGS` that can be read here."""
    found = {"AVIF": features.check("avif"), "HEIF": find_spec("pillow_heif") is not None}
    return tuple(name for name, there in found.items() if there)


@cache
def endings() -> tuple[str, ...]:
    """Of the images that can be read here."""
    return (*ENDINGS, *(ending for name in plug_ins() for ending in MORE_ENDINGS[name]))


def decode(file: IO[bytes], pixels: Pixels = RGB, value_range: Range | None = None) -> Tensor:
    """(C, H, W), upright, by the rules of `manyview.pixels.stored`, as a viewer would show it on white paper; raises
    `Unreadable`.

    The channels lie last in memory, as decoders leave them: what cuts crops wants them so.
    """
    try:
        with _open(file) as image:
            if image is None or _is_for_tifffile(image, pixels.channels):
                values, opacity, turn = tiff.read(file, pixels.channels)
            else:
                turn, opacity = orientation_of(image), None
                if pixels == RGB and value_range is None and turn == 1 and image.mode in ("RGB", "L"):
                    found = _jpeg(file) if image.format == "JPEG" else None
                    if found is not None:
                        return found
                if _raw_mode(image) in _LOW_BYTES:
                    values, opacity = _deep(image, file, pixels.channels)
                else:
                    values = numbers_of(image, pixels.channels)
        if turn != 1:
            values, opacity = upright(values, turn), None if opacity is None else upright(opacity, turn)
        return stored(values, pixels.channels, pixels.dtype, value_range=value_range, opacity=opacity)
    except Exception as error:  # decoders fail in a dozen ways on broken files, and all of them mean the same
        raise Unreadable(_reason(error)) from error


def header(file: IO[bytes]) -> Header:
    """Without the pixels; raises `Unreadable`."""
    try:
        with _open(file) as image:
            if image is None:
                return Header(*tiff.header(file))
            turn = orientation_of(image)
            size = (image.width, image.height) if turn in (5, 6, 7, 8) else (image.height, image.width)
            bits = _png_bits(file) if image.format == "PNG" else max(_tiff_tag(image, _BITS, (8,)))
            return Header(size, turn, bits > 8 or image.mode.startswith(DEEP))
    except Exception as error:  # as in `decode`
        raise Unreadable(_reason(error)) from error


def pages(file: IO[bytes]) -> int:
    """How many images of the size of the first a TIFF begins with; one of other files."""
    with suppress(Exception), _open(file) as image:  # broken ones are told of where they are decoded
        if image is not None and image.format == "TIFF":
            size, count = image.size, 1
            while count < getattr(image, "n_frames", 1):
                image.seek(count)
                if image.size != size:  # a smaller copy of it
                    break
                count += 1
            return count
    return 1


@contextmanager
def _open(file: IO[bytes]) -> Iterator[ImageFile | None]:
    """The image, of which no pixel is decoded yet; None of a TIFF of a kind that Pillow does not know."""
    file.seek(0)
    start = file.read(12)
    file.seek(0)
    try:
        image = Image.open(file, formats=_formats(start))
    except UnidentifiedImageError:
        if not start.startswith(_TIFF_STARTS):
            raise
        yield None
        return
    with image:
        refuse_bomb(image.width, image.height)
        yield image


def _formats(start: bytes) -> tuple[str, ...]:
    if start[4:8] != b"ftyp":
        return _FORMATS
    if "HEIF" in plug_ins() and "HEIF" not in Image.OPEN:
        from pillow_heif import register_heif_opener

        Image.init()
        register_heif_opener()
    return plug_ins()


def _jpeg(file: IO[bytes]) -> Tensor | None:
    """What Pillow would give, to the last bit, in less time: torchvision's decoder writes the pixels where they stay.

    None where it fails or is not built in: then Pillow decodes, or says what is wrong.
    """
    import torchvision  # noqa: F401  for torch.ops.image

    position = file.tell()
    file.seek(0)
    try:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        # The operator, because the function around it warns of its end; Pillow remains when that comes.
        pixels: Tensor = torch.ops.image.decode_jpeg(data, _TO_RGB, False)
    except (AttributeError, RuntimeError):
        return None
    finally:
        file.seek(position)
    return pixels


def _deep(image: ImageFile, file: IO[bytes], channels: int) -> tuple[Numbers, Numbers | None]:
    """Of colours with 16 bits, of which Pillow gives 8, in two halves: (H, W, S), and opacity where it is none of them.
    (torchvision would give all bits of a PNG, and crash on damaged ones.)"""
    high = np.array(image)
    file.seek(0)
    with Image.open(file, formats=("PNG", "TIFF")) as other:
        low = _LOW_BYTES[_raw_mode(other)]
        other.tile = [
            tile._replace(args=low if isinstance(tile.args, str) else (low, *(tile.args or ())[1:]))
            for tile in other.tile
        ]
        values = (high.astype(np.uint16) << 8) | np.array(other)
    return without_opacity(values) if values.shape[2] == 4 != channels else (values, None)


def _raw_mode(image: ImageFile) -> str:
    """How the bytes of a pixel lie in a PNG or a TIFF."""
    args: Any = image.tile[0].args if image.tile and image.format in ("PNG", "TIFF") else ""
    return str(args[0]) if args and isinstance(args, tuple) else str(args)


def _png_bits(file: IO[bytes]) -> int:
    position = file.tell()
    file.seek(_PNG_BITS)
    bits = file.read(1)
    file.seek(position)
    return bits[0] if bits else 8


def _is_for_tifffile(image: ImageFile, channels: int) -> bool:
    """Whether it has channels, bits or pages that Pillow would leave out."""
    if image.format != "TIFF":
        return False
    count = _tiff_tag(image, _SAMPLES, 1)
    if _tiff_tag(image, _DEPTH, 1) > 1:  # a volume, which it refuses
        return True
    if count == 1:
        return channels > 1 and getattr(image, "n_frames", 1) == channels
    deep = max(_tiff_tag(image, _BITS, (8,))) > 8 and _raw_mode(image) not in _LOW_BYTES
    return deep or count == channels != len(image.getbands())


def _tiff_tag(image: Image.Image, tag: int, default: Any) -> Any:
    return getattr(image, "tag_v2", {}).get(tag, default)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return one_line(error) or type(error).__name__
