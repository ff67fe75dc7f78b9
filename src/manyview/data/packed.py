"""Any source as one memory-mapped file, in the safetensors format: a tensor for each field."""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from manyview.atomic import out_file, replacing
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
from manyview.errors import UserError, printable
from manyview.fields import FIELDS, IMAGE, Pixels

_METADATA = "manyview-pack"
_FORMAT = 2
_TYPES = {torch.uint8: "U8", torch.uint16: "U16"}
_PRESENT = "present."  # before the name of a field: which samples have it
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
        self.name = printable(facts["name"])
        self.arrays = {name: tensors[name] for name in facts["fields"]}
        self.fields = self.selected = tuple(facts["fields"])
        height, width = self.arrays[self.fields[0]].shape[2:]
        self.size = (height, width)
        if IMAGE in self.arrays:
            self.pixels = Pixels(self.arrays[IMAGE].shape[1], self.arrays[IMAGE].dtype == torch.uint16)
        self.fingerprint = facts["fingerprint"]
        self.preprocess = facts["preprocess"]
        self.ids = Names(tensors["ids"].numpy().tobytes())
        self.unreadable = tuple((id_, reason) for id_, reason in facts["unreadable"])
        present = {name: tensors[_PRESENT + name].bool() for name in self.fields if _PRESENT + name in tensors}
        self.present = present or None
        self.groups = tensors["groups"].clone() if "groups" in tensors else None
        self.group_names = facts["group_names"]
        if labelled and "labels" in tensors:
            self.labels = tensors["labels"].clone()
            self.classes = tuple(facts["classes"])

    def id(self, index: int) -> str:
        return self.ids[range(len(self))[index]]

    def select(self, names: Iterable[str]) -> Source:
        names = tuple(names)
        if self.origin is None or set(names) <= set(self.arrays):
            return super().select(names)
        chosen = self.origin.select(names)
        return pack_once(chosen, cache_path(chosen, chosen.cache_key), labelled=self._labelled)

    def __reduce__(self) -> tuple[Any, ...]:  # a mapped tensor would be copied
        return _reopen, (self.path, self._labelled, self.selected)


def _reopen(path: Path, labelled: bool, selected: tuple[str, ...]) -> Source:
    return Packed(path, labelled=labelled).select(selected)


def _load(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and the tensors of a file that may be anything."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get(_METADATA, "null"))
            _require(isinstance(facts, dict), "it is of another kind")
            _require(facts.get("format") == _FORMAT, "it was packed by another version of manyview")
            names = facts.get("fields")
            known = isinstance(names, list) and bool(names) and all(name in list(FIELDS) for name in names)
            _require(known, "its fields are unknown")
            dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            optional = {"labels": "I64", "groups": "I64"} | {_PRESENT + name: "U8" for name in names}
            expected = {name: _TYPES[FIELDS[name].dtype] for name in names}
            if IMAGE in names and dtypes.get(IMAGE) == _TYPES[torch.uint16]:
                expected[IMAGE] = dtypes[IMAGE]
            expected |= {"ids": "U8", "unreadable": "U8"}
            expected |= {name: kind for name, kind in optional.items() if name in dtypes}
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
    ids, labels, groups = tensors["ids"], tensors.get("labels"), tensors.get("groups")
    count, _, height, width = tensors[facts["fields"][0]].shape if tensors[facts["fields"][0]].ndim == 4 else [0] * 4
    for name in facts["fields"]:
        channels = facts.get("channels", 3) if name == IMAGE else FIELDS[name].channels
        _require(type(channels) is int, "the number of its channels is none")
        _require(
            tensors[name].shape == (count, channels, height, width) and tensors[name].numel() > 0,
            f"its field {name} is not (n, {channels}, height, width), or not like the others",
        )
        _require(tensors.get(_PRESENT + name, ids[:count]).shape == (count,), "what is missing is not told of each")
    _require(int((ids == 0).sum()) >= count, "ids are missing")
    texts = (facts.get("name"), facts.get("fingerprint"), facts.get("preprocess"))
    _require(all(isinstance(text, str) for text in texts), "its description is not whole")
    classes: Any = facts.get("classes")
    _require(_are_names(classes), "its class names are not a list of names")
    pairs = facts["unreadable"]
    known = isinstance(pairs, list) and all(_are_names(pair) and len(pair) == 2 for pair in pairs)
    _require(known, "its list of unreadable images is not one")
    group_names: Any = facts.get("group_names")
    _require(_are_names(group_names), "its groups have no names")
    if groups is not None:
        _require(groups.shape == (count,), f"{groups.numel()} groups for {count} samples")
        named = len(group_names) or groups.max() + 1
        _require(bool((groups >= 0).all() and (groups < named).all()), "its groups exceed their names")
    if labels is not None:
        _require(labels.shape == (count,), f"{labels.numel()} labels for {count} samples")
        _require(bool((labels >= 0).all() and (labels < len(classes)).all()), "its labels exceed its classes")


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def pack(source: Source, path: str | Path, *, image_size: int | None = None, progress: bool = True) -> Packed:
    """Writes all readable images of a source into one file, in place of what was there; the others are listed in it.

    With `image_size` S the shorter side is resized to S (bilinear, antialiased) and the centre S × S cut out. Without
    it the images must have one size.
    """
    with out_file(Path(path), "choose a place with room for it"):
        _write(source, Path(path), image_size, progress)
    return Packed(path)


def pack_once(source: Source, path: Path, *, labelled: bool = True) -> Packed:
    """The packed copy of a source at its place in the cache, made now if it is not there yet."""
    if path.exists():
        try:
            found = Packed(path, labelled=labelled)
            found.name = source.name  # the path may have been written in another way when it was packed
            found.origin, found.fields = source, source.fields
            return found
        except UserError:
            note(f"{path} is damaged and will be made again")
    began = time.monotonic()
    try:
        _write(source, path, None, progress=True)
    except OSError as error:
        way_out = "set MANYVIEW_CACHE to a directory with room for it"
        raise UserError(f"'{path}' cannot be written ({error.strerror}): {way_out}") from error
    packed = Packed(path)
    note(
        f"packed {len(packed):,} images of '{source.name}' into {path} "
        f"({path.stat().st_size / 2**20:,.1f} MiB, {time.monotonic() - began:.1f} s) for this and later runs"
        + (f"; {len(packed.unreadable):,} cannot be read and were left out" if packed.unreadable else "")
    )
    packed = Packed(path, labelled=labelled)
    packed.origin, packed.fields = source, source.fields
    return packed


def cache_path(source: Source, key: str) -> Path:
    """Where the packed copy of a source belongs; `key` changes whenever its pixels do."""
    # A few pixels belong to it too: they notice when the code that makes them has changed.
    some = [len(source) * i // 4 for i in range(4)]
    samples = [_read(source, i) for i in some] if source.size is None else [source.batch(torch.tensor(some))]
    pixels = [field.numpy().tobytes() for sample in samples if isinstance(sample, dict) for field in sample.values()]
    labels = b"" if source.labels is None else source.labels.numpy().tobytes()
    mark = digest(str(_FORMAT).encode(), key.encode(), labels, *pixels)
    readable = re.sub(r"[^\w.]+", "-", source.name, flags=re.ASCII).strip("-.")[-40:]
    return cache_directory() / f"{readable}-{mark}.safetensors"


def _read(source: Source, index: int) -> dict[str, Tensor] | Unreadable:
    try:
        return source.read(index)
    except Unreadable as reason:
        return reason


def _write(source: Source, path: Path, image_size: int | None, progress: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = (image_size, image_size) if image_size else source.size or _first_size(source)
    chunk = max(1, min(256, _CHUNK_BYTES // (pixel_bytes(source) * size[0] * size[1])))
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
        for fields, numbers, reasons in track(chunks, f"packing {source.name}", len(starts), show=progress):
            writer.add(fields)
            kept += numbers
            failed += [(source.id(number), reason) for number, reason in reasons.items()]
            if len(failed) > UNREADABLE_SHARE * len(source):
                raise UserError(
                    f"more than {UNREADABLE_SHARE:.0%} of the images of '{source.name}' cannot be read: "
                    f"repair or remove them (the first is {': '.join(failed[0])})"
                )
        writer.finish(kept, failed, resized=image_size is not None)


def pixel_bytes(source: Source, names: Iterable[str] | None = None) -> int:
    """Of one pixel in all selected fields, or in these."""
    fields = map(source.field, source.selected if names is None else names)
    return sum(field.channels * field.dtype.itemsize for field in fields)


def _first_size(source: Source) -> tuple[int, int]:
    for index in range(len(source)):
        sample = _read(source, index)
        if isinstance(sample, dict):
            return _size(sample)
    raise UserError(f"not one image of '{source.name}' can be read: check the files")


def _size(sample: dict[str, Tensor]) -> tuple[int, int]:
    height, width = next(iter(sample.values())).shape[-2:]
    return height, width


@dataclass
class _Reader:
    """Runs of samples as fields (N, c, H, W), the numbers of those that could be read, and why the others could not."""

    source: Source
    size: tuple[int, int]
    image_size: int | None

    def __call__(self, numbers: range) -> tuple[dict[str, Tensor], list[int], dict[int, str]]:
        if self.source.size is not None:
            return self._fit(self.source.batch(torch.tensor(numbers))), list(numbers), {}
        samples, reasons = {}, {}
        for number in numbers:
            sample = _read(self.source, number)
            if isinstance(sample, Unreadable):
                reasons[number] = str(sample)
                continue
            samples[number] = self._fit({name: field[None] for name, field in sample.items()})
            if _size(samples[number]) != self.size:
                (height, width), (other_height, other_width) = self.size, _size(sample)
                raise SizesDifferError(
                    f"the images of '{self.source.name}' differ in size ({height} × {width}, but {other_height} × "
                    f"{other_width} for {self.source.id(number)}): choose one with --image-size"
                )
        names = self.source.selected if samples else ()
        return {name: torch.cat([each[name] for each in samples.values()]) for name in names}, list(samples), reasons

    def _fit(self, fields: dict[str, Tensor]) -> dict[str, Tensor]:
        """(N, c, H, W) -> the centre of what the shorter side's resizing gives."""
        if self.image_size is None:
            return fields
        side, (height, width) = self.image_size, _size(fields)
        resized = [max(side, round(length * side / min(height, width))) for length in (height, width)]
        if resized != [height, width]:
            fields = {name: FIELDS[name].resized(field, (resized[0], resized[1])) for name, field in fields.items()}
        top, left = ((length - side) // 2 for length in resized)
        return {name: field[:, :, top : top + side, left : left + side].contiguous() for name, field in fields.items()}


@dataclass
class _Writer:
    """Writes a safetensors file whose number of samples is known only at the end, without holding them in memory.

    The fields come first, behind a header of reserved length (the format allows it to be padded with spaces). A tensor
    lies in one piece, so all fields but the first wait in files of their own.
    """

    files: dict[str, IO[bytes]]  # by field; the first is the packed file itself
    source: Source
    size: tuple[int, int]

    @classmethod
    @contextmanager
    def aside(cls, path: Path, source: Source, size: tuple[int, int]) -> Iterator["_Writer"]:
        """Under the file's name only when it is whole and on the disk."""
        # Numbers of two bytes first, so that they lie at even places.
        first, *others = sorted(source.selected, key=lambda name: -source.field(name).dtype.itemsize)
        with ExitStack() as stack:
            files = {first: stack.enter_context(replacing(path))}
            files |= {name: stack.enter_context(tempfile.TemporaryFile(dir=path.parent)) for name in others}
            writer = cls(files, source, size)
            files[first].seek(8 + writer.reserved)
            yield writer

    def add(self, fields: dict[str, Tensor]) -> None:
        for name, field in fields.items():
            self.files[name].write(field.numpy().tobytes())

    @property
    def reserved(self) -> int:
        """An upper bound of the header's length: whatever changes in it until the end are a few numbers."""
        length = len(
            self._header(len(self.source), ids=0, unreadable=0, fingerprint=self.source.fingerprint, resized=True)
        )
        return -(-length // 8) * 8 + 512

    def finish(self, kept: list[int], failed: list[tuple[str, str]], *, resized: bool) -> None:
        source, (file, *others) = self.source, self.files.values()
        for other in others:
            other.seek(0)
            shutil.copyfileobj(other, file)
        there = [mask[kept].to(torch.uint8).numpy().tobytes() for mask in self._present.values()]
        ids = b"".join(source.id(number).encode() + b"\0" for number in kept)
        before = len(kept) * (pixel_bytes(source, self.files) * self.size[0] * self.size[1] + len(there)) + len(ids)
        ids += b"\0" * (-before % 8)  # aligns the labels
        unreadable = json.dumps(failed).encode()
        numbers = [each[kept].numpy().tobytes() for each in (source.labels, source.groups) if each is not None]
        file.write(b"".join([*there, ids, *numbers, unreadable]))
        changed = resized or failed
        mark = (
            digest(source.fingerprint.encode(), repr((self.size, failed)).encode()) if changed else source.fingerprint
        )
        header = self._header(len(kept), ids=len(ids), unreadable=len(unreadable), fingerprint=mark, resized=resized)
        file.seek(0)
        file.write(self.reserved.to_bytes(8, "little") + header.ljust(self.reserved))

    @property
    def _present(self) -> dict[str, Tensor]:
        return {name: mask for name, mask in (self.source.present or {}).items() if name in self.files}

    def _header(self, count: int, *, ids: int, unreadable: int, fingerprint: str, resized: bool) -> bytes:
        source, (height, width) = self.source, self.size
        facts = {
            "format": _FORMAT,
            "name": source.name,
            "fields": source.selected,
            "classes": source.classes,
            "group_names": list(source.group_names),
            "fingerprint": fingerprint,
            "preprocess": f"shorter side resized to {height}, centre crop {height} × {width}"
            if resized
            else "as stored",
        }
        if source.pixels.channels != 3 and IMAGE in self.files:
            facts["channels"] = source.pixels.channels
        per_sample = {"labels": source.labels, "groups": source.groups}
        tensors: list[tuple[str, str, list[int], int]] = [
            *(
                (name, _TYPES[source.field(name).dtype], [count, source.field(name).channels, height, width],
                 count * pixel_bytes(source, [name]) * height * width)
                for name in self.files
            ),
            *((_PRESENT + name, "U8", [count], count) for name in self._present),
            ("ids", "U8", [ids], ids),
            *((name, "I64", [count], 8 * count) for name, each in per_sample.items() if each is not None),
            ("unreadable", "U8", [unreadable], unreadable),
        ]  # fmt: skip
        header: dict[str, Any] = {"__metadata__": {_METADATA: json.dumps(facts)}}
        offset = 0
        for name, dtype, shape, length in tensors:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + length]}
            offset += length
        return json.dumps(header).encode()
