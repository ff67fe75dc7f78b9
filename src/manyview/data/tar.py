"""A tar of images, read where it lies."""

import os
import posixpath
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from manyview.data.folder import ImageFiles, is_image, label
from manyview.data.source import digest, track
from manyview.errors import UserError

__all__ = ["Tar"]

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}


class Tar(ImageFiles):
    """The images in an uncompressed tar, labelled by the first level of directories below what all of them share."""

    def __init__(self, path: str | Path, *, labelled: bool = True) -> None:
        self.path = Path(path)
        found = sorted(_find(self.path).items())
        labels, self.classes = (
            label(_below_common([name for name, _ in found]), None, str(path)) if labelled else (None, ())
        )
        super().__init__(str(path), [(name, length) for name, (_, length) in found], labels=labels)
        self._places = np.array([place for _, place in found])  # (n, 2): offset and length
        self._descriptor = os.open(self.path, os.O_RDONLY)

    def open(self, index: int) -> IO[bytes]:
        offset, length = self._places[index].tolist()
        # pread brings its own position, so that threads and forked workers do not move each other's.
        return BytesIO(os.pread(self._descriptor, length, offset))

    @property
    def cache_key(self) -> str:
        modified = self.path.stat().st_mtime_ns
        return digest(self.fingerprint.encode(), os.fsencode(self.path.resolve()), str(modified).encode())

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_descriptor"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._descriptor = os.open(self.path, os.O_RDONLY)

    def __del__(self) -> None:
        if "_descriptor" in self.__dict__:
            os.close(self._descriptor)


def _find(path: Path) -> dict[bytes, tuple[int, int]]:
    """Name -> (offset, length) of every image; of members with one name the last counts, as in extraction."""
    try:
        with path.open("rb") as file:
            compression = _COMPRESSED.get(file.read(2))
        if compression:
            raise UserError(
                f"'{path}' is compressed ({compression}), so its images cannot be read one by one: "
                "unpack it and give the directory, or a tar made without compression"
            )
        with tarfile.open(path, "r:") as tar:
            return dict(_images(tar, path))
    except tarfile.TarError as error:
        raise UserError(f"'{path}' is not a whole tar file ({error}): make or fetch it again") from error
    except OSError as error:
        raise UserError(f"'{path}' cannot be read ({error.strerror}): check its permissions") from error


def _images(tar: tarfile.TarFile, path: Path) -> Iterator[tuple[bytes, tuple[int, int]]]:
    for member in track(tar, f"indexing {path}"):
        if member.size < 0:  # a forged header, on which tarfile would go round in circles
            raise tarfile.ReadError("a member has a negative length")
        name = "/".join(part for part in member.name.split("/") if part not in ("", "."))
        if member.isreg() and not member.issparse() and is_image(name):
            yield name.encode("utf-8", "surrogateescape"), (member.offset_data, member.size)


def _below_common(paths: list[bytes]) -> list[bytes]:
    """The paths without the leading directories that all of them share."""
    shared = posixpath.commonpath([posixpath.dirname(path) for path in paths]) if paths else b""
    return [path[len(shared) :].lstrip(b"/") for path in paths]
