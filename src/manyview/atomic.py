"""Atomic writes (to a temporary file that is synced and renamed), output files, and locks between processes."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from manyview.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` once it is whole and on the disk.

    A failure on the way leaves what was there before and nothing else.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(aside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)  # the rename itself must last, too
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def out_file(path: Path, way_out: str = "choose another place", *, folder: bool = False) -> Iterator[None]:
    """Around what writes the file that a user names by --out. All commands have one rule: its directory is made where
    it is not there, and a file that was there is replaced, as a whole and at the end. `folder`: it may be one."""
    if path.is_dir() and not folder:  # told before the work
        raise UserError(f"--out {path} is a directory: name a file")
    try:
        yield
    except OSError as error:
        raise UserError(f"--out {path} cannot be written ({error.strerror or error}): {way_out}") from error


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """One process at a time is inside; one that dies lets go. Without `wait`, False where another one is. The lock is a
    hidden file beside `path`, which may itself be replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open, too
