"""Images in tars, read where they lie: one tar, or the many shards of a set that would strain a file system."""

import os
import posixpath
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from manyview.data.fieldfiles import KINECT_MM, OTHERS, Camera
from manyview.data.folder import ImageFiles, label
from manyview.data.source import Names, Unreadable, digest, note
from manyview.data.tarindex import NO_LABEL, WRONG_LABEL, Index, Shard, indexes
from manyview.errors import UserError
from manyview.fields import IMAGE

_OPEN = 64  # descriptors kept by a process for all its tars: some systems allow no more than 256


class TarImages(ImageFiles):
    """The images in uncompressed tars, ordered by the tars' names, then by their own.

    Names and not places give the order, so that a tar written anew in another order holds the same samples, and so
    that a tar lists what its extraction would. Members follow WebDataset's conventions: those whose names agree up to
    the first dot of the base name belong together, and KEY.cls holds the label as a whole number. Every image is a
    sample of its own, also when several share a key (and then a label). Where no image has a .cls, the first level of
    directories below what all images share gives the labels. KEY.depth.png, KEY.segmentation.png and KEY.normals.png
    are other fields of the images with that key.
    """

    def __init__(
        self, name: str, tars: Mapping[str, object], found: Sequence[Index], *, labelled: bool, camera: Camera
    ) -> None:
        """`tars` are their names in order, with which the ids of their images begin, and what they are called;
        `found` are their indexes."""
        empty = [tar for tar, index in zip(tars.values(), found, strict=True) if not len(index)]
        if empty and len(empty) < len(tars):
            note(f"{len(empty):,} of the {len(tars):,} tars of '{name}' hold no images, the first is {empty[0]}")
        self._ends = np.cumsum([len(index) for index in found])
        self._places = np.concatenate([index.places for index in found])  # (n, 2): offset and length
        ids = Names(b"".join(_below(tar, index.names) for tar, index in zip(tars, found, strict=True)))
        labels, self.classes = _label(found, ids, name) if labelled else (None, ())
        self._others = np.concatenate([index.others for index in found])  # (n, fields, 2)
        lengths = {field: np.ascontiguousarray(self._others[:, i, 1]) for i, field in enumerate(OTHERS)}
        super().__init__(name, ids, self._places[:, 1], labels=labels, others=lengths, camera=camera)

    def open(self, index: int, field: str = IMAGE) -> IO[bytes]:
        index = range(len(self))[index]
        place = self._places[index] if field == IMAGE else self._others[index, OTHERS.index(field)]
        offset, length = place.tolist()
        return BytesIO(self._bytes(int(np.searchsorted(self._ends, index, side="right")), offset, length))

    @abstractmethod
    def _bytes(self, shard: int, offset: int, length: int) -> bytes:
        """Of the tar with this number."""


class Shards(TarImages):
    """Tars on this machine."""

    def __init__(
        self, name: str, tars: Mapping[str, Path], *, labelled: bool = True, camera: Camera = KINECT_MM
    ) -> None:
        """`tars` are their names and where they lie."""
        tars = dict(sorted(tars.items()))
        self._shards = [Shard.of(path) for path in tars.values()]
        super().__init__(name, tars, indexes(self._shards, name), labelled=labelled, camera=camera)

    def _bytes(self, shard: int, offset: int, length: int) -> bytes:
        return _opened(self._shards[shard]).read(offset, length)

    @property
    def cache_key(self) -> str:
        states = [(os.fsencode(shard.path.resolve()), str(shard.modified).encode()) for shard in self._shards]
        return digest(self.fingerprint.encode(), *(part for state in states for part in state))


class Tar(Shards):
    """The images in one uncompressed tar; their ids are their names in it."""

    def __init__(self, path: str | Path, *, labelled: bool = True, camera: Camera = KINECT_MM) -> None:
        super().__init__(str(path), {"": Path(path)}, labelled=labelled, camera=camera)


class _OpenTar:
    """Closed when nobody holds it any more: never under the hands of a thread that reads while others open tars."""

    def __init__(self, shard: Shard) -> None:
        self._descriptor = os.open(shard.path, os.O_RDONLY)
        facts = os.fstat(self._descriptor)
        if (facts.st_size, facts.st_mtime_ns) != (shard.size, shard.modified):
            raise Unreadable(f"'{shard.path}' has changed since it was opened: start again")

    def read(self, offset: int, length: int) -> bytes:
        # pread brings its own position, so that threads and forked workers do not move each other's.
        return os.pread(self._descriptor, length, offset)

    def __del__(self) -> None:
        if "_descriptor" in self.__dict__:
            os.close(self._descriptor)


# Of the process and not of a source, so that the bound holds for all of them and they can be pickled.
_opened = lru_cache(_OPEN)(_OpenTar)


def _below(tar: str, names: bytes) -> bytes:
    """The names, each ended by a zero byte, with the tar's name before them."""
    if not tar or not names:
        return names
    start = os.fsencode(tar) + b"/"
    return start + names[:-1].replace(b"\0", b"\0" + start) + b"\0"


def _label(found: Sequence[Index], ids: Names, name: str) -> tuple[Sequence[int] | None, tuple[str, ...]]:
    """Numbers and names of the classes, or (None, ()) where not all images have one."""
    given = np.concatenate([index.labels for index in found])
    missing = int((given == NO_LABEL).sum())
    if missing == len(given):
        paths = [path for index in found for path in index.names.split(b"\0")[:-1]]
        return label(_below_common(paths), None, name)
    wrong = np.flatnonzero(given == WRONG_LABEL)
    if len(wrong):
        raise UserError(
            f"the .cls of {ids[int(wrong[0])]} in '{name}' is not a whole number: write one, or use --unlabelled"
        )
    if missing:
        note(f"'{name}' counts as unlabelled: {missing:,} of its {len(given):,} images have no .cls")
        return None, ()
    values, numbers = np.unique(given, return_inverse=True)
    return numbers.tolist(), tuple(str(value) for value in values.tolist())


def _below_common(paths: list[bytes]) -> list[bytes]:
    """The paths without the leading directories that all of them share."""
    shared = posixpath.commonpath(list({posixpath.dirname(path) for path in paths})) if paths else b""
    return [path[len(shared) :].lstrip(b"/") for path in paths]
