"""Images in files: decoding, a look at their headers, and a tree of directories as a source."""

import os
import stat
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from manyview.counter import permutation
from manyview.data.source import UNREADABLE_SHARE, Names, Source, Unreadable, digest, note, track
from manyview.errors import UserError
from manyview.fields import IMAGE

__all__ = ["ENDINGS", "Folder", "ImageFiles", "Probe", "decode", "first_image", "is_image", "label"]

ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)
# Named, because Pillow would otherwise try everything it knows, PostScript interpreters included.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM", "GIF")
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TO_RGB = 3  # torchvision's ImageReadMode.RGB
_PROBE_ALL = 20_000  # sets up to this size have every header looked at, larger ones those of a sample
_PROBE_SOME = 2_000
_PROBE_TAG = 0x970BE

# Pillow warns of odd metadata; all that matters here is whether the pixels can be had.
warnings.filterwarnings("ignore", module=r"PIL\.")


def is_image(path: str) -> bool:
    """Whether a relative path has an image's ending, and no hidden part ("._x.jpg" is a Mac's note about x.jpg)."""
    return path.lower().endswith(ENDINGS) and not any(part.startswith(".") for part in path.split("/"))


def decode(file: IO[bytes]) -> Tensor:
    """(3, H, W) uint8, upright, as a viewer would show it on white paper; raises `Unreadable`.

    The channels lie last in memory, as decoders leave them: what cuts crops wants them so.
    """
    try:
        with _open(file) as image:
            turn = _UPRIGHT.get(_orientation(image))
            plain = image.format == "JPEG" and image.mode in ("RGB", "L") and turn is None
            pixels = _jpeg(file) if plain else None
            if pixels is None:
                pixels = torch.from_numpy(_rgb(image if turn is None else image.transpose(turn))).permute(2, 0, 1)
    except Exception as error:  # decoders fail in a dozen ways on broken files, and all of them mean the same
        raise Unreadable(_reason(error)) from error
    return pixels


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


def _open(file: IO[bytes]) -> Image.Image:
    image = Image.open(file, formats=_FORMATS)
    if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        raise Unreadable(f"{image.width} × {image.height} pixels: a decompression bomb, or far too large")
    return image


def _orientation(image: Image.Image) -> int:
    if image.format == "TIFF":  # Pillow turns these itself
        return 1
    if image.format == "PNG" and "exif" not in image.info:  # Pillow would decode the pixels in search of it
        return 1
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # broken metadata around good pixels
        return 1


def _rgb(image: Image.Image) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """(H, W, 3)."""
    if image.mode.startswith("I"):
        grey = np.asarray(image)
        if grey.min() < 0 or grey.max() > 65535:
            raise Unreadable("its grey values exceed 16 bits: convert it to 8 or 16 bits")
        # Pillow would clip at 255.
        return np.repeat(((grey.astype(np.uint32) + 128) // 257).astype(np.uint8)[..., None], 3, axis=2)
    if image.mode == "F":
        raise Unreadable("its pixels are floating-point numbers without a known range: convert it to 8 or 16 bits")
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        # Dropping alpha alone would bring out the colours that are hidden under transparent pixels.
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"))


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return " ".join(str(error).split()) or type(error).__name__


@dataclass(frozen=True)
class Probe:
    """What the headers of a set of image files say."""

    checked: int
    size: tuple[int, int] | None  # (height, width) when every checked image has it
    median_side: int  # of the shorter sides
    unreadable: tuple[tuple[str, str], ...]  # (id, reason)


class ImageFiles(Source):
    """Images that are decoded when they are asked for: a broken one is found only then, so no batch is promised."""

    size = None

    def __init__(
        self,
        name: str,
        ids: Names,
        lengths: "np.ndarray[Any, np.dtype[np.int64]]",
        *,
        labels: Sequence[int] | None,
    ) -> None:
        """`lengths` (n,) are those of the files in bytes."""
        if not len(ids):
            raise UserError(f"'{name}' holds no images: files ending in {' '.join(ENDINGS)} are read, at any depth")
        import torchvision  # noqa: F401  before workers are forked, each of which would import it

        self.name = name
        self.ids = ids
        self.labels = None if labels is None else torch.tensor(labels)
        self.fingerprint = digest(ids.blob, lengths.tobytes())

    def __len__(self) -> int:
        return len(self.ids)

    def id(self, index: int) -> str:
        return self.ids[index]

    @abstractmethod
    def open(self, index: int) -> IO[bytes]:
        """The bytes of one file."""

    def read(self, index: int) -> dict[str, Tensor]:
        try:
            with self.open(index) as file:
                return {IMAGE: decode(file)}
        except OSError as error:
            raise Unreadable(_reason(error)) from error

    @cached_property
    def probe(self) -> Probe:
        """Reads headers only; raises a `UserError` when too many are broken."""
        count = len(self)
        some = range(count) if count <= _PROBE_ALL else sorted(permutation(count, _PROBE_TAG)[:_PROBE_SOME].tolist())
        sizes, unreadable = [], []
        for index in track(some, f"looking at {self.name}"):
            try:
                sizes.append(self._size(index))
            except Unreadable as reason:
                unreadable.append((self.id(index), str(reason)))
        if len(unreadable) > UNREADABLE_SHARE * len(some):
            raise UserError(
                f"{len(unreadable):,} of {len(some):,} images of '{self.name}' cannot be read, more than "
                f"{UNREADABLE_SHARE:.0%}: repair or remove them (the first is {': '.join(unreadable[0])})"
            )
        median = int(np.median([min(size) for size in sizes]))
        return Probe(len(some), sizes[0] if len(set(sizes)) == 1 else None, median, tuple(unreadable))

    def _size(self, index: int) -> tuple[int, int]:
        try:
            with self.open(index) as file, _open(file) as image:
                sideways = _orientation(image) in (5, 6, 7, 8)
                return (image.width, image.height) if sideways else (image.height, image.width)
        except Exception as error:  # as in `decode`
            raise Unreadable(_reason(error)) from error

    @property
    @abstractmethod
    def cache_key(self) -> str:
        """Changes whenever the pixels may have; the fingerprint does not follow new content of the same length."""

    @property
    def median_side(self) -> int:
        return self.probe.median_side

    @property
    def unreadable(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        return self.probe.unreadable


class Folder(ImageFiles):
    """Every image below a directory, labelled by the first level of directories."""

    def __init__(
        self,
        root: str | Path,
        *,
        name: str | None = None,
        labelled: bool = True,
        classes: Sequence[str] | None = None,
    ) -> None:
        """`classes` limits the tree to these directories, all of which must be there."""
        self.root = Path(root)
        name = name or f"{str(root).rstrip('/')}/"
        if not self.root.is_dir():
            raise UserError(f"'{self.root}' is not a directory: check the path")
        tops = None if classes is None else sorted(classes)
        missing = [top for top in tops or () if not (self.root / top).is_dir()]
        if missing:
            raise UserError(
                f"'{name}' lacks {len(missing)} of {len(tops or ())} classes in {self.root}: add {' '.join(missing)}"
            )
        found = _find(self.root, tops)
        labels, self.classes = label([path for path, _, _ in found], tops, name) if labelled else (None, ())
        lengths = np.array([length for _, length, _ in found])
        super().__init__(name, Names.of(path for path, _, _ in found), lengths, labels=labels)
        self._modified = np.array([modified for _, _, modified in found]).tobytes()

    def open(self, index: int) -> IO[bytes]:
        return open(self.root / os.fsdecode(self.ids.raw(index)), "rb")

    @property
    def cache_key(self) -> str:
        return digest(self.fingerprint.encode(), os.fsencode(self.root.resolve()), self._modified)


def label(paths: Sequence[bytes], classes: Sequence[str] | None, name: str) -> tuple[list[int] | None, tuple[str, ...]]:
    """Numbers and names of the first directories, or (None, ()) where there are none."""
    tops = [path.partition(b"/")[0] if b"/" in path else None for path in paths]
    loose = tops.count(None)
    if loose:
        if loose < len(tops):
            note(
                f"'{name}' counts as unlabelled: {loose:,} of its {len(tops):,} images lie outside any class directory"
            )
        return None, ()
    names = sorted({top for top in tops if top is not None}) if classes is None else [os.fsencode(c) for c in classes]
    number = {top: i for i, top in enumerate(names)}
    return [number[top] for top in tops if top is not None], tuple(n.decode("utf-8", "backslashreplace") for n in names)


def _find(root: Path, tops: Sequence[str] | None) -> list[tuple[bytes, int, int]]:
    """(path below root, length, time of change) of every image, sorted by path."""
    return sorted(track(_images(root, tops), f"listing {root}"))


def first_image(root: Path) -> str | None:
    """The path below root of any image."""
    return next((os.fsdecode(path) for path, _, _ in _images(root, None)), None)


def _images(root: Path, tops: Sequence[str] | None) -> Iterator[tuple[bytes, int, int]]:
    starts = [(os.fspath(root), "")] if tops is None else [(os.fspath(root / top), f"{top}/") for top in tops]
    try:
        for directory, prefix in starts:
            yield from _visit(directory, prefix, frozenset())
    except OSError as error:
        raise UserError(f"'{error.filename}' cannot be listed ({error.strerror}): check its permissions") from error


def _visit(directory: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[bytes, int, int]]:
    here = os.stat(directory)
    if (here.st_dev, here.st_ino) in above:  # a link that leads back up
        return
    above |= {(here.st_dev, here.st_ino)}
    with os.scandir(directory) as entries:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            if entry.is_dir():
                if not entry.name.startswith("."):
                    yield from _visit(entry.path, f"{path}/", above)
            elif is_image(entry.name):
                try:
                    facts = entry.stat()
                except FileNotFoundError:  # a dangling link is a broken image, to be counted as one
                    yield os.fsencode(path), -1, 0
                else:
                    if stat.S_ISREG(facts.st_mode):
                        yield os.fsencode(path), facts.st_size, facts.st_mtime_ns
