"""Which images an uncompressed tar holds, and where: found once by walking its headers, then kept in the cache."""

import io
import json
import os
import posixpath
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from manyview.atomic import replacing
from manyview.data.decoding import plug_ins
from manyview.data.fieldfiles import OTHERS, key_and_field
from manyview.data.folder import ABSENT, is_image, note_orphans, note_passed
from manyview.data.loader import processors, read_ahead
from manyview.data.source import cache_directory, digest, note, track
from manyview.errors import UserError, printable
from manyview.fields import IMAGE

NO_LABEL = -1  # the sample has no .cls
WRONG_LABEL = -2  # it has one, which is not a whole number

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_BLOCK = 512
_LABEL_DIGITS = 18  # what fits into 64 bits, whatever the digits
_AFTER_THE_END = 1 << 20  # bytes looked at for a second tar; writers pad with zeros, mostly to 10 KiB
_LONGEST_HEADER = 1 << 20  # bytes, with the name in it
_PARALLEL_BYTES = 64 << 20  # of tars, from which starting worker processes pays
_METADATA = "manyview-tar-index"
_FORMAT = 2


class Shard(NamedTuple):
    """A tar as it is now: with another size or time of change it counts as another one."""

    path: Path
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> "Shard":
        try:
            facts = path.stat()
        except OSError as error:
            raise UserError(f"'{path}' cannot be read ({error.strerror}): check the path and permissions") from error
        return cls(path, facts.st_size, facts.st_mtime_ns)

    @property
    def kept_at(self) -> Path:
        return index_path(self.path.name, os.fsencode(self.path.resolve()))


class Indexed(Protocol):
    """A tar, wherever it lies."""

    @property
    def size(self) -> int: ...
    @property
    def modified(self) -> int | str: ...
    @property
    def kept_at(self) -> Path:
        """The place of its index, one for all of its states, so that no outdated indexes pile up."""


def index_path(name: str, place: bytes) -> Path:
    readable = re.sub(r"[^\w.]+", "-", name, flags=re.ASCII).strip("-.")[-40:]
    return cache_directory() / "tars" / f"{readable}-{digest(place)}.safetensors"


@dataclass(frozen=True)
class Index:
    """The n images of a tar, sorted by name."""

    names: bytes  # each ended by a zero byte
    places: "np.ndarray[Any, np.dtype[np.int64]]"  # (n, 2): offset and length
    labels: "np.ndarray[Any, np.dtype[np.int64]]"  # (n,): what the sample's .cls says, or NO_LABEL, or WRONG_LABEL
    others: "np.ndarray[Any, np.dtype[np.int64]]"  # (n, fields, 2): places of the files of `OTHERS`, or ABSENT

    def __len__(self) -> int:
        return len(self.places)

    def fits(self, shard: Indexed) -> bool:
        """Whether it could be an index of this tar, as one read from the disk may hold anything."""
        count = len(self)
        return (
            self.places.dtype == self.labels.dtype == self.others.dtype == np.int64
            and self.others.shape == (count, len(OTHERS), 2)
            and bool((self.others >= ABSENT).all() and (self.others <= shard.size).all())
            and bool((self.others.sum(2) <= shard.size).all())
            and self.places.shape == (count, 2)
            and self.labels.shape == (count,)
            and self.names.count(b"\0") == count
            and self.names.endswith(b"\0" if count else b"")
            and bool((self.places >= 0).all() and (self.places <= shard.size).all())
            and bool((self.places.sum(1) <= shard.size).all() and (self.labels >= WRONG_LABEL).all())
        )


def indexes(shards: Sequence[Shard], name: str) -> list[Index]:
    """The indexes of all shards, the kept ones from the cache; `name` is what the user calls the set."""
    found = {shard: index for shard in shards if (index := load(shard)) is not None}
    missing = [shard for shard in shards if shard not in found]
    several = len(missing) > 1
    parallel = several and sum(shard.size for shard in missing) >= _PARALLEL_BYTES
    # The workers are forked here, before the progress bar has a thread.
    built = read_ahead(
        partial(find_images, show=not several), missing, workers=min(8, processors(), len(missing)) if parallel else 0
    )
    failure: OSError | None = None
    for shard, index in zip(missing, track(built, f"indexing {name}", len(missing), show=several), strict=True):
        found[shard] = index
        try:
            keep(shard, index)
        except OSError as error:  # the index is at hand all the same
            failure = error
    if failure is not None:
        note(
            f"the index of '{name}' cannot be kept for later runs ({failure.strerror}): "
            "set MANYVIEW_CACHE to a directory that can be written"
        )
    return [found[shard] for shard in shards]


def find_images(shard: Shard, *, called: str | None = None, show: bool = False) -> Index:
    """Walks the headers of a tar; of the contents only labels are read. Errors name it as it is `called`."""
    path = printable(called or str(shard.path))
    try:
        with _Headers(io.FileIO(shard.path)) as file:
            if compression := _COMPRESSED.get(file.read(2)):
                raise UserError(
                    f"'{path}' is compressed ({compression}), so its images cannot be read one by one: "
                    "unpack it and give the directory, or a tar made without compression"
                )
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as tar:
                index = _walk(tar, path, show)
                _check_end(file, tar.offset, path)
    except (tarfile.TarError, ValueError) as error:  # tarfile stumbles over the numbers of some forged headers
        raise UserError(f"'{path}' is not a whole tar file ({error}): make or fetch it again") from error
    except OSError as error:
        raise UserError(f"'{path}' cannot be read ({error.strerror}): check its permissions") from error
    if Shard.of(shard.path) != shard:
        raise UserError(f"'{path}' changed while it was read: wait until it is written")
    return index


class _Headers(io.BufferedReader):
    """A tar of which a forged header cannot ask for more than a header has: tarfile would take terabytes for a name."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a member has a header of {size:,} bytes")
        return super().read(size)


def _walk(tar: tarfile.TarFile, path: str, show: bool) -> Index:
    """Of members with one name the last counts, as in extraction."""
    places: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}  # by key
    others: dict[tuple[str, str], tuple[int, int]] = {}  # by key and field
    passed = Counter[str]()
    for member in track(iter(tar.next, None), f"indexing {path}", show=show):
        tar.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every one, a kilobyte each
        if member.size < 0:  # a forged header, on which tarfile would go round in circles
            raise tarfile.ReadError("a member has a negative length")
        name = "/".join(part for part in member.name.split("/") if part not in ("", "."))
        if "\0" in name:
            raise tarfile.ReadError("a member has a zero byte in its name")
        if not member.isreg() or member.issparse():
            continue
        key, ending = _split(name)
        if ending.lower() == "cls":
            labels[key] = _read_label(tar, member)
        elif is_image(name):
            key, field = key_and_field(name)
            if field == IMAGE:
                places[name] = member.offset_data, member.size
            else:
                others[key, field] = member.offset_data, member.size
        elif not posixpath.basename(name).startswith("."):
            passed[os.path.splitext(name)[1].lower()] += 1
    note_passed(str(path), passed)
    images = sorted((name.encode("utf-8", "surrogateescape"), name) for name in places)
    for field in OTHERS:
        note_orphans(field, [key for key, its in others if its == field], (_split(name)[0] for name in places))
    return Index(
        b"".join(name + b"\0" for name, _ in images),
        np.array([places[name] for _, name in images], dtype=np.int64).reshape(-1, 2),
        np.array([labels.get(_split(name)[0], NO_LABEL) for _, name in images], dtype=np.int64),
        np.array(
            [[others.get((_split(name)[0], field), (ABSENT, ABSENT)) for field in OTHERS] for _, name in images],
            dtype=np.int64,
        ).reshape(-1, len(OTHERS), 2),
    )


def _split(name: str) -> tuple[str, str]:
    """(key, ending) at the first dot of the base name: what WebDataset goes by, files of one key being one sample."""
    directory, slash, base = name.rpartition("/")
    start, _, ending = base.partition(".")
    return directory + slash + start, ending


def _read_label(tar: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    file = tar.extractfile(member)
    assert file is not None, "a regular file"
    text = file.read(_LABEL_DIGITS + _BLOCK).strip()
    return int(text) if text.isdigit() and len(text) <= _LABEL_DIGITS else WRONG_LABEL


def _check_end(file: IO[bytes], offset: int, path: str) -> None:
    """A tar ends with blocks of zeros: tarfile also stops, without a word, where one breaks off or is damaged."""
    file.seek(offset)
    rest = file.read(_AFTER_THE_END)
    if rest[:_BLOCK] != bytes(_BLOCK):
        raise tarfile.ReadError(f"it breaks off or is damaged at byte {offset:,}")
    if rest.strip(b"\0"):
        raise UserError(f"'{path}' goes on behind its end, as tars joined by cat do: keep them as separate tars")


def _mark(shard: Indexed, index: Index) -> str:
    content = digest(index.names, *(each.tobytes() for each in (index.places, index.labels, index.others)))
    return json.dumps([_FORMAT, shard.size, shard.modified, content, *plug_ins()])


def keep(shard: Indexed, index: Index) -> None:
    """For later runs."""
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "names": np.frombuffer(index.names, dtype=np.uint8),
        "places": index.places,
        "labels": index.labels,
        "others": index.others,
    }
    with replacing(shard.kept_at) as file:
        file.write(safetensors.numpy.save(tensors, {_METADATA: _mark(shard, index)}))


def kept_state(place: Path) -> tuple[int, str] | None:
    """Size and state of the tar on a server whose index is kept there, by its own account."""
    try:
        with safe_open(place, framework="np") as file:
            _, size, modified, *_ = json.loads((file.metadata() or {})[_METADATA])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return (size, modified) if type(size) is int and type(modified) is str else None


def load(shard: Indexed) -> Index | None:
    """None if no index is kept, or that of another state of the tar, or a damaged one."""
    try:
        with safe_open(shard.kept_at, framework="np") as file:
            mark = (file.metadata() or {}).get(_METADATA)
            names, places, labels, others = map(file.get_tensor, ("names", "places", "labels", "others"))
            index = Index(names.tobytes(), places, labels, others)
    except (SafetensorError, OSError, TypeError, ValueError):
        return None
    return index if index.fits(shard) and mark == _mark(shard, index) else None
