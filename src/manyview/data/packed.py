"""Any source as one memory-mapped file of uint8 images, in the safetensors format."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from manyview.atomic import replacing
from manyview.data.loader import processors, read_ahead
from manyview.data.source import (
    UNREADABLE_SHARE,
    Arrays,
    Names,
    Source,
    Unreadable,
    cache_directory,
    digest,
    note,
    track,
)
from manyview.errors import UserError
from manyview.stack import PLANES, channels_of

__all__ = ["Packed", "SizesDifferError", "cache_path", "pack", "pack_once"]

_METADATA = "manyview-pack"
_FORMAT = 1
_CHUNK_BYTES = 4 << 20  # what a worker hands over at once; shared memory may be as small as 64 MiB
_PARALLEL = 2_000  # samples from which worker processes pay


class SizesDifferError(UserError):
    """The images have several sizes and no common one was asked for."""


class Packed(Arrays):
    """A packed file. Pages are read as they are touched, and every process maps the file for itself."""

    origin: Source | None = None  # what it is a copy of, where that is at hand

    def __init__(self, path: str | Path, *, labelled: bool = True) -> None:
        self.path = Path(path)
        self._labelled = labelled
        facts, tensors = _load(self.path)
        self.name = facts["name"]
        self.images = tensors["images"]
        self.size = (self.images.shape[2], self.images.shape[3])
        self.fingerprint = facts["fingerprint"]
        self.preprocess = facts["preprocess"]
        self.planes = tuple(facts["planes"])
        self.ids = Names(tensors["ids"].numpy().tobytes())
        self.unreadable = tuple((id_, reason) for id_, reason in facts["unreadable"])
        if labelled and "labels" in tensors:
            self.labels = tensors["labels"].clone()
            self.classes = tuple(facts["classes"])

    def id(self, index: int) -> str:
        return self.ids[range(len(self))[index]]

    def showing(self, planes: Sequence[str]) -> Source:
        if self.origin is None or tuple(planes) == self.planes:
            return super().showing(planes)
        shown = self.origin.showing(planes)
        return pack_once(shown, cache_path(shown, shown.fingerprint), labelled=self._labelled)

    def __reduce__(self) -> tuple[Any, ...]:  # a mapped tensor would be copied
        return _reopen, (self.path, self._labelled)


def _reopen(path: Path, labelled: bool) -> Packed:
    return Packed(path, labelled=labelled)


def _load(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and the tensors of a file that may be anything."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get(_METADATA, "null"))
            _require(isinstance(facts, dict) and facts.get("format") == _FORMAT, "it is of another kind")
            dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            expected = {"images": "U8", "ids": "U8", "unreadable": "U8"} | (
                {"labels": "I64"} if "labels" in dtypes else {}
            )
            _require(dtypes == expected, "it holds other tensors")
            tensors = {name: file.get_tensor(name) for name in dtypes}
        facts["unreadable"] = json.loads(tensors["unreadable"].numpy().tobytes())
        _check(facts, tensors)
    except _MalformedError as error:
        raise UserError(f"'{path}' is not a packed set ({error}): make it with manyview pack") from error
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise UserError(f"'{path}' is not a packed set, or is damaged: make it with manyview pack") from error
    return facts, tensors


class _MalformedError(Exception):
    pass


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _MalformedError(otherwise)


def _check(facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    images, ids, labels = tensors["images"], tensors["ids"], tensors.get("labels")
    planes = facts.setdefault("planes", [])
    _require(
        isinstance(planes, list) and all(isinstance(plane, str) and plane in PLANES for plane in planes),
        "its further images are unknown",
    )
    channels = channels_of(planes)
    _require(
        images.ndim == 4 and images.shape[1] == channels and images.numel() > 0,
        f"its images are not (n, {channels}, height, width)",
    )
    _require(int((ids == 0).sum()) >= len(images), "ids are missing")
    texts = (facts.get("name"), facts.get("fingerprint"), facts.get("preprocess"))
    _require(all(isinstance(text, str) for text in texts), "its description is not whole")
    classes: Any = facts.get("classes")
    _require(
        isinstance(classes, list) and all(isinstance(c, str) for c in classes),
        "its class names are not a list of names",
    )
    pairs = facts["unreadable"]
    _require(
        isinstance(pairs, list) and all(_is_pair(pair) for pair in pairs), "its list of unreadable images is not one"
    )
    if labels is not None:
        _require(labels.shape == images.shape[:1], f"{labels.numel()} labels for {len(images)} images")
        _require(bool((labels >= 0).all() and (labels < len(classes)).all()), "its labels exceed its classes")


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def pack(source: Source, path: str | Path, *, image_size: int | None = None, progress: bool = True) -> Packed:
    """Writes all readable images of a source into one file; the others are listed in it.

    With `image_size` S the shorter side is resized to S (bilinear, antialiased) and the centre S × S cut out. Without
    it the images must have one size.
    """
    if Path(path).exists():
        raise UserError(f"'{path}' exists already: remove it or choose another name")
    return _pack(source, Path(path), image_size, progress, otherwise="choose a place with room for it")


def pack_once(source: Source, path: Path, *, labelled: bool = True) -> Packed:
    """The packed copy of a source at its place in the cache, made now if it is not there yet."""
    if path.exists():
        try:
            found = Packed(path, labelled=labelled)
            found.name = source.name  # the path may have been written in another way when it was packed
            found.origin = source
            return found
        except UserError:
            note(f"{path} is damaged and will be made again")
    began = time.monotonic()
    packed = _pack(source, path, None, progress=True, otherwise="set MANYVIEW_CACHE to a directory with room for it")
    note(
        f"packed {len(packed):,} images of '{source.name}' into {path} "
        f"({path.stat().st_size / 2**20:,.1f} MiB, {time.monotonic() - began:.1f} s) for this and later runs"
        + (f"; {len(packed.unreadable):,} cannot be read and were left out" if packed.unreadable else "")
    )
    packed = Packed(path, labelled=labelled)
    packed.origin = source
    return packed


def cache_path(source: Source, key: str) -> Path:
    """Where the packed copy of a source belongs; `key` changes whenever its pixels do."""
    # A few pixels belong to it too: they notice when the code that makes them has changed.
    some = [len(source) * i // 4 for i in range(4)]
    images = [_read(source, i) for i in some] if source.size is None else [source.batch(torch.tensor(some))]
    pixels = [image.numpy().tobytes() if isinstance(image, Tensor) else b"" for image in images]
    labels = b"" if source.labels is None else source.labels.numpy().tobytes()
    mark = digest(str(_FORMAT).encode(), key.encode(), labels, *pixels)
    readable = re.sub(r"[^\w.]+", "-", source.name, flags=re.ASCII).strip("-.")[-40:]
    return cache_directory() / f"{readable}-{mark}.safetensors"


def _read(source: Source, index: int) -> Tensor | Unreadable:
    try:
        return source.read(index)
    except Unreadable as reason:
        return reason


def _pack(source: Source, path: Path, image_size: int | None, progress: bool, otherwise: str) -> Packed:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(source, path, image_size, progress)
    except OSError as error:
        raise UserError(f"'{path}' cannot be written ({error.strerror}): {otherwise}") from error
    return Packed(path)


def _write(source: Source, path: Path, image_size: int | None, progress: bool) -> None:
    size = (image_size, image_size) if image_size else source.size or _first_size(source)
    chunk = max(1, min(256, _CHUNK_BYTES // (channels_of(source.planes) * size[0] * size[1])))
    starts = range(0, len(source), chunk)
    # The workers are forked here, before the progress bar has a thread.
    chunks = read_ahead(
        _Reader(source, size, image_size),
        [range(start, min(start + chunk, len(source))) for start in starts],
        workers=min(8, processors()) if len(source) >= _PARALLEL else 0,
    )
    kept: list[int] = []
    failed: list[tuple[str, str]] = []
    with _Writer.aside(path, source, size) as writer:
        for images, numbers, reasons in track(chunks, f"packing {source.name}", len(starts), show=progress):
            writer.file.write(images.numpy().tobytes())
            kept += numbers
            failed += [(source.id(number), reason) for number, reason in reasons.items()]
            if len(failed) > UNREADABLE_SHARE * len(source):
                raise UserError(
                    f"more than {UNREADABLE_SHARE:.0%} of the images of '{source.name}' cannot be read: "
                    f"repair or remove them (the first is {': '.join(failed[0])})"
                )
        writer.finish(kept, failed, resized=image_size is not None)


def _first_size(source: Source) -> tuple[int, int]:
    for index in range(len(source)):
        image = _read(source, index)
        if isinstance(image, Tensor):
            return image.shape[1], image.shape[2]
    raise UserError(f"not one image of '{source.name}' can be read: check the files")


@dataclass
class _Reader:
    """Runs of samples as (N, C, H, W) images, the numbers of those that could be read, and why the others could not."""

    source: Source
    size: tuple[int, int]
    image_size: int | None

    def __call__(self, numbers: range) -> tuple[Tensor, list[int], dict[int, str]]:
        if self.source.size is not None:
            return self._fit(self.source.batch(torch.tensor(numbers))), list(numbers), {}
        images, reasons = {}, {}
        for number in numbers:
            image = _read(self.source, number)
            if isinstance(image, Unreadable):
                reasons[number] = str(image)
                continue
            images[number] = self._fit(image[None])
            if images[number].shape[2:] != self.size:
                (height, width), (_, other_height, other_width) = self.size, image.shape
                raise SizesDifferError(
                    f"the images of '{self.source.name}' differ in size ({height} × {width}, but {other_height} × "
                    f"{other_width} for {self.source.id(number)}): choose one with --image-size"
                )
        stacked = torch.cat(list(images.values())) if images else torch.empty(0, dtype=torch.uint8)
        return stacked, list(images), reasons

    def _fit(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> the centre of what the shorter side's resizing gives."""
        if self.image_size is None:
            return images
        side, (height, width) = self.image_size, images.shape[2:]
        resized = [max(side, round(length * side / min(height, width))) for length in (height, width)]
        if resized != [height, width]:
            images = F.interpolate(images, size=resized, mode="bilinear", antialias=True)
        top, left = ((length - side) // 2 for length in resized)
        return images[:, :, top : top + side, left : left + side].contiguous()


@dataclass
class _Writer:
    """Writes a safetensors file whose number of images is known only at the end, without holding them in memory.

    The images come first, behind a header of reserved length (the format allows it to be padded with spaces).
    """

    file: IO[bytes]
    source: Source
    size: tuple[int, int]

    @classmethod
    @contextmanager
    def aside(cls, path: Path, source: Source, size: tuple[int, int]) -> Iterator["_Writer"]:
        """Under the file's name only when it is whole and on the disk."""
        with replacing(path) as file:
            writer = cls(file, source, size)
            file.seek(8 + writer.reserved)
            yield writer

    @property
    def reserved(self) -> int:
        """An upper bound of the header's length: whatever changes in it until the end are a few numbers."""
        length = len(
            self._header(len(self.source), ids=0, unreadable=0, fingerprint=self.source.fingerprint, resized=True)
        )
        return -(-length // 8) * 8 + 256

    def finish(self, kept: list[int], failed: list[tuple[str, str]], *, resized: bool) -> None:
        source = self.source
        ids = b"".join(source.id(number).encode() + b"\0" for number in kept)
        ids += b"\0" * (
            -(len(kept) * channels_of(source.planes) * self.size[0] * self.size[1] + len(ids)) % 8
        )  # aligns the labels
        unreadable = json.dumps(failed).encode()
        labels = b"" if source.labels is None else source.labels[kept].numpy().tobytes()
        self.file.write(ids + labels + unreadable)
        changed = resized or failed
        mark = (
            digest(source.fingerprint.encode(), repr((self.size, failed)).encode()) if changed else source.fingerprint
        )
        header = self._header(len(kept), ids=len(ids), unreadable=len(unreadable), fingerprint=mark, resized=resized)
        self.file.seek(0)
        self.file.write(self.reserved.to_bytes(8, "little") + header.ljust(self.reserved))

    def _header(self, count: int, *, ids: int, unreadable: int, fingerprint: str, resized: bool) -> bytes:
        channels, (height, width) = channels_of(self.source.planes), self.size
        facts = {
            "format": _FORMAT,
            "name": self.source.name,
            "classes": self.source.classes,
            "fingerprint": fingerprint,
            "planes": self.source.planes,
            "preprocess": f"shorter side resized to {height}, centre crop {height} × {width}"
            if resized
            else "as stored",
        }
        tensors: list[tuple[str, str, list[int], int]] = [
            ("images", "U8", [count, channels, height, width], count * channels * height * width),
            ("ids", "U8", [ids], ids),
            *([] if self.source.labels is None else [("labels", "I64", [count], 8 * count)]),
            ("unreadable", "U8", [unreadable], unreadable),
        ]
        header: dict[str, Any] = {"__metadata__": {_METADATA: json.dumps(facts)}}
        offset = 0
        for name, dtype, shape, length in tensors:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + length]}
            offset += length
        return json.dumps(header).encode()
