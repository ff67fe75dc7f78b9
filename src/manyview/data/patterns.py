"""The files that a directory, a glob or a brace range names."""

import glob
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from manyview.data.folder import first_image
from manyview.errors import UserError

_SPECIAL = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}", re.ASCII)
# Compressed ones are named here too, for they are tars to their owner, who is then told what to do about them.
_TAR = re.compile(r"\.tar(\.(gz|bz2|xz|zst|lz4))?$|\.t(gz|bz|bz2|xz|zst)$", re.IGNORECASE)


def is_tar(path: str | Path) -> bool:
    return _TAR.search(os.fspath(path)) is not None


def is_pattern(spec: str) -> bool:
    return _SPECIAL.search(spec) is not None


def tars_in(directory: Path) -> dict[str, Path]:
    """The tars that lie directly in a directory, by name, or none where it is one of loose images."""
    try:
        tars = {path.name: path for path in sorted(directory.iterdir()) if is_tar(path)}
        tars = {name: path for name, path in tars.items() if not name.startswith(".") and path.is_file()}
    except OSError as error:
        raise UserError(f"'{directory}' cannot be listed ({error.strerror}): check its permissions") from error
    image = first_image(directory) if tars else None
    if image is None:
        return tars
    uncompressed = next((name for name in tars if name.lower().endswith(".tar")), None)
    if uncompressed is not None:
        raise UserError(
            f"'{directory}' holds tars ({uncompressed}) and loose images ({image}): "
            f"use '{directory / '*.tar'}' for the tars, or move them away for the images"
        )
    return {}  # the compressed archive from which the images come is often left beside them


def tars_matching(spec: str) -> dict[str, Path]:
    """The tars that a pattern names, by their paths below the directory that all it can match share."""
    return matching(spec, is_tar, ".tar")


def matching(spec: str, is_kind: Callable[[str], bool], ending: str) -> dict[str, Path]:
    """The files that a pattern names, all of which have to be of one kind, likewise."""
    pattern = os.path.expanduser(spec)
    base = os.path.dirname(_SPECIAL.split(pattern, maxsplit=1)[0]) or os.curdir
    files: dict[str, Path] = {}
    for one in spelled_out(pattern):
        matches = glob.glob(one, recursive=True) if glob.has_magic(one) else [one] if os.path.exists(one) else []
        if not matches:
            if one != pattern:
                raise UserError(f"'{spec}' names '{one}', which does not exist: fetch or make it, or shorten the range")
            raise UserError(
                f"'{spec}' matches no file: check the path; patterns are written as 'a-*{ending}' or "
                f"'a-{{000..099}}{ending}'"
            )
        other = next((match for match in matches if not (is_kind(match) and os.path.isfile(match))), None)
        if other is not None:
            raise UserError(
                f"'{spec}' matches '{other}', which is no {ending}: patterns are for tars and parquet files, as "
                f"'shards/*{ending}'; of loose images give the directory"
            )
        files |= {os.path.relpath(match, base): Path(match) for match in matches}
    return files


def spelled_out(pattern: str) -> Iterator[str]:
    """a-{08..10} -> a-08 a-09 a-10 and {a,b} -> a b, as shells do; lazily, for a range may be absurdly long."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    first, last, listed = braces.groups()
    for choice in _numbers(first, last) if listed is None else listed.split(","):
        yield from spelled_out(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _numbers(first: str, last: str) -> Iterator[str]:
    padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    low, high = sorted((int(first), int(last)))
    return (f"{number:0{width}d}" for number in range(low, high + 1))
