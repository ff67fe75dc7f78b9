"""Images in the rows of parquet files, as the Hugging Face hub keeps them.

A parquet file is read in row groups, of which a random order would decode a whole one for each image. So the bytes of
the images, as they are, are copied into the cache once, one after the other, and read from there on their own.
"""

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from manyview.atomic import locked, replacing
from manyview.data.columns import Table, pyarrow, table, values
from manyview.data.fieldfiles import Camera
from manyview.data.folder import ImageFiles, first_image
from manyview.data.loader import processors, read_ahead
from manyview.data.patterns import tars_in
from manyview.data.source import Names, Unreadable, cache_directory, digest, note, note_once, track
from manyview.data.splits import check_whole, split_of, test_files, training_files
from manyview.data.tarindex import Shard
from manyview.errors import UserError
from manyview.fields import IMAGE

Lengths = np.ndarray[Any, np.dtype[np.int64]]

_FORMAT = b"1"
_ROWS = 64  # decoded at once: a few MB of photographs
_MAPPED = 64  # copies that a process keeps open: some systems allow no more than 256 files
_PARALLEL_BYTES = 64 << 20  # of parquet files, from which starting worker processes pays
_MARK = 16  # bytes


def is_parquet(path: str | Path) -> bool:
    return os.fspath(path).lower().endswith(".parquet")


def parquet_in(directory: Path) -> dict[str, Path]:
    """The parquet files in a directory, its data/ and its train/, test/ and so on, by their paths below it, or none
    where it is one of loose images or tars, which they may describe."""
    try:
        found = list(directory.iterdir())
        inner = [each for each in found if (each.name == "data" or split_of(each.name)) and each.is_dir()]
        found += [path for each in inner for path in each.iterdir()]
    except OSError as error:
        raise UserError(f"'{error.filename}' cannot be listed ({error.strerror}): check its permissions") from error
    files = [path for path in found if is_parquet(path) and not path.name.startswith(".") and path.is_file()]
    other = (first_image(directory) or next(iter(tars_in(directory)), None)) if files else None
    if other is not None:
        note_once(
            f"'{directory}' is read as one of images or tars ({other}), not of parquet files ({files[0].name}): "
            f"for those use '{files[0].parent / '*.parquet'}'"
        )
        return {}
    names = {path.relative_to(directory).as_posix(): path for path in files}
    check_whole(str(directory), names)
    return names


def open_parquet(name: str, files: Mapping[str, Path], *, split: str, labelled: bool, camera: Camera) -> "Parquet":
    """One split of a set. `files` are their names, with which the ids of their images begin, and where they lie."""
    if split != "test":
        return Parquet(name, table(name, training_files(name, files), labelled=labelled), camera)
    tests = [table(name, part, labelled=labelled) for part in test_files(name, files)]
    # The labels of a test split may be kept secret, as ImageNet's: then there is one for validation.
    return Parquet(name, next((each for each in tests if each.labels is not None), tests[0]), camera)


class Parquet(ImageFiles):
    """The images in one column of parquet files, ordered by the files' names, then by row; ids are FILE:ROW."""

    def __init__(self, name: str, content: Table, camera: Camera) -> None:
        shards = [Shard.of(path) for path in content.files.values()]
        self._copies = _copies(name, shards, content.image)
        self._ends = np.cumsum([len(copy.lengths) for copy in self._copies])
        self._offsets = np.concatenate([np.cumsum(copy.lengths) - copy.lengths for copy in self._copies])
        self._lengths = np.concatenate([copy.lengths for copy in self._copies])
        starts = [os.fsencode(f"{file}:") for file in content.files]
        rows = zip(starts, self._copies, strict=True)
        ids = Names.of(start + b"%d" % row for start, copy in rows for row in range(len(copy.lengths)))
        self.classes = content.classes
        super().__init__(name, ids, self._lengths, labels=content.labels, others={}, camera=camera)
        self._states = [
            part for shard in shards for part in (os.fsencode(shard.path.resolve()), b"%d" % shard.modified)
        ]

    def open(self, index: int, field: str = IMAGE) -> IO[bytes]:
        index = range(len(self))[index]
        start, length = int(self._offsets[index]), int(self._lengths[index])
        if not length:
            raise Unreadable("its row holds no image")
        copy = self._copies[int(np.searchsorted(self._ends, index, side="right"))]
        return BytesIO(_mapped(copy.file)[start : start + length].tobytes())

    @property
    def cache_key(self) -> str:
        return digest(self.fingerprint.encode(), *self._states)


@dataclass(frozen=True)
class Copy:
    """The images of a parquet file, one after the other, in the cache."""

    file: Shard
    lengths: Lengths  # (n,) in bytes


@lru_cache(_MAPPED)
def _mapped(copy: Shard) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    if Shard.of(copy.path) != copy:
        raise Unreadable(f"'{copy.path}' has changed since it was opened: start again")
    return np.memmap(copy.path, dtype=np.uint8, mode="r")


def _copies(name: str, shards: Sequence[Shard], column: str) -> list[Copy]:
    """Those that are missing are made now; `name` is what the user calls the set."""
    found = {shard: copy for shard in shards if (copy := _load(shard, column)) is not None}
    missing = [shard for shard in shards if shard not in found]
    if not missing:
        return [found[shard] for shard in shards]
    pyarrow()  # before workers are forked, each of which would import it
    _check_room(missing, column)
    began = time.monotonic()
    parallel = len(missing) > 1 and sum(shard.size for shard in missing) >= _PARALLEL_BYTES
    # The workers are forked here, before the progress bar has a thread.
    made = read_ahead(
        partial(_copied, column=column), missing, workers=min(8, processors(), len(missing)) if parallel else 0
    )
    for shard, copy in zip(missing, track(made, f"copying {name}", len(missing)), strict=True):
        found[shard] = copy
    images, size = (
        sum(each) for each in zip(*((len(found[s].lengths), found[s].file.size) for s in missing), strict=True)
    )
    note(
        f"copied {images:,} images of '{name}' into {_kept_at(missing[0], column).parent} ({size / 2**20:,.1f} MiB, "
        f"{time.monotonic() - began:.1f} s) for this and later runs"
    )
    return [found[shard] for shard in shards]


def _check_room(shards: Sequence[Shard], column: str) -> None:
    """Images hardly shrink in a parquet file, so its size is about that of its copy."""
    directory = _kept_at(shards[0], column).parent
    there = next(each for each in (directory, *directory.parents) if each.exists())
    needed, free = sum(shard.size for shard in shards), shutil.disk_usage(there).free
    if needed > free:
        raise UserError(
            f"'{directory}' has {free / 2**30:,.1f} GiB left for a copy of the images, which takes about "
            f"{needed / 2**30:,.1f} GiB: set MANYVIEW_CACHE to a directory with room for it"
        )


def _kept_at(shard: Shard, column: str) -> Path:
    """One place for all states of a parquet file, so that no outdated copies pile up."""
    whose = digest(os.fsencode(shard.path.resolve()), column.encode())
    readable = re.sub(r"[^\w.]+", "-", shard.path.name, flags=re.ASCII).strip("-.")[-40:]
    return cache_directory() / "parquet" / f"{readable}-{whose}.images"


def _mark(shard: Shard, lengths: Lengths) -> bytes:
    return digest(_FORMAT, str((shard.size, shard.modified)).encode(), lengths.tobytes()).encode()


def _copied(shard: Shard, column: str) -> Copy:
    """Made once, also where several commands open a new set at the same time: a second copy in the place of the first
    would be a change to whoever reads that one."""
    path = _kept_at(shard, column)
    try:
        with locked(path):
            return _load(shard, column) or _written(shard, column, path)
    except OSError as error:
        raise UserError(
            f"'{path}' cannot be written ({error.strerror}): set MANYVIEW_CACHE to a directory with room for it"
        ) from error


def _written(shard: Shard, column: str, path: Path) -> Copy:
    """The images of a parquet file, then their lengths, a mark and their number."""
    lengths = [np.zeros(0, dtype=np.int64)]
    with replacing(path) as file:
        for array in values(shard.path, column, _ROWS):
            offsets, content = _buffers(array)
            file.write(content[offsets[0] : offsets[-1]])
            lengths.append(np.diff(offsets))
        whole = np.concatenate(lengths)
        if len(whole) and not whole.any():
            raise UserError(
                f"'{shard.path}' holds no images, only their paths or nothing: give the directory of the images"
            )
        file.write(whole.tobytes() + _mark(shard, whole) + len(whole).to_bytes(8, "little"))
    if Shard.of(shard.path) != shard:
        raise UserError(f"'{shard.path}' changed while it was read: wait until it is written")
    return Copy(Shard.of(path), whole)


def _buffers(array: Any) -> tuple[Lengths, memoryview]:
    """Where the values of a binary array begin and end, and their bytes."""
    whole = array.cast(pyarrow().large_binary()).fill_null(b"")
    _, offsets, content = whole.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return starts, memoryview(content if content is not None else b"")


def _load(shard: Shard, column: str) -> Copy | None:
    """None if no copy is kept, or that of another state of the file, or a damaged one."""
    path = _kept_at(shard, column)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MARK - 8))
            mark, count = file.read(_MARK), int.from_bytes(file.read(8), "little")
            end = size - 8 * count - _MARK - 8
            if end < 0:
                return None
            file.seek(end)
            lengths = np.frombuffer(file.read(8 * count), dtype=np.int64)
    except OSError:
        return None
    if mark != _mark(shard, lengths) or (lengths < 0).any() or lengths.sum() != end:
        return None
    return Copy(Shard.of(path), lengths)
