"""What a set of images is to the rest of the library, and the few things that every set shares."""

import copy
import hashlib
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import track as rich_track
from torch import Tensor

from manyview.counter import permutation
from manyview.errors import UserError, printable
from manyview.fields import FIELDS, IMAGE, RGB, Field, Pixels

T = TypeVar("T")

UNREADABLE_SHARE = 0.05
SILENCE = 30.0  # seconds after which a log gets a line
_HOLDOUT_TAG = b"manyview holdout"
_NEAR_TAG = 0x6E656172  # "near": keeps the choice of shards apart from everybody else's draws
_LOOKED_AT = 2048  # samples that looks at a few share, where not all shards are at hand


class Unreadable(Exception):
    """One image cannot be read; the message says why."""


class NoTestSplit(UserError):
    """The source has no test split: the caller may hold a part of it out instead."""


class Source(ABC):
    """A numbered set of samples, with labels where they are known. A sample is named fields: see `manyview.fields`."""

    name: str  # as shown to the user
    labels: Tensor | None = None  # (n,) int64
    classes: tuple[str, ...] = ()
    size: tuple[int, int] | None  # (height, width) when images of one size are at hand as arrays: `batch` works
    fingerprint: str  # changes when the listing changes
    unreadable: tuple[tuple[str, str], ...] = ()  # (id, reason) of the broken images known so far
    fields: tuple[str, ...] = (IMAGE,)  # on offer
    selected: tuple[str, ...] = (IMAGE,)  # what `read` and `batch` give
    pixels: Pixels = RGB  # how its images are stored
    present: Mapping[str, Tensor] | None = None  # (n,) bool for each field that some samples lack
    groups: Tensor | None = None  # (n,) int64: samples of one group, as frames of a video, are no negatives
    group_names: Sequence[str] = ()  # by number, where they have names
    layout: str = ""  # of data with more fields, as an error says it
    shards: Tensor | None = None  # (n,) int64: the shard of each sample, where not all shards can be at hand at once
    window: int = 0  # as many can, while as many others are fetched
    _whole: "Source | None" = None  # what this is a selection of

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def id(self, index: int) -> str:
        """The stable name of a sample."""

    @abstractmethod
    def read(self, index: int) -> dict[str, Tensor]:
        """The selected fields, (c, H, W) each; one that the sample lacks is 0. Raises `Unreadable`."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """The selected fields of the samples `index` (N,), (N, c, H, W) each; only when `size` is known."""
        raise TypeError(f"'{self.name}' is read sample by sample")

    def order(self, *words: int) -> Tensor:
        """All samples in a random order that is a function of the words alone. Where not all shards can be at hand,
        they come in windows: shards in a random order, and all samples of a window shuffled."""
        shuffled = permutation(len(self), *words)
        if self.shards is None:
            return shuffled
        count = len(torch.bincount(self.shards))
        window = torch.argsort(permutation(count, *words)) * self._windows // count  # of each shard
        return shuffled[torch.argsort(window[self.shards[shuffled]], stable=True)]

    def some(self, *words: int) -> Tensor:
        """The same for a look at the first few. Where not all shards can be at hand, only samples of a few shards, the
        same for all looks."""
        return self.near[permutation(len(self.near), *words)]

    @property
    def near(self) -> Tensor:
        """(m,) The samples that a look may take: all, or where not all shards can be at hand, those of a few."""
        if self.shards is None:
            return torch.arange(len(self))
        counts = torch.bincount(self.shards)
        shards = permutation(len(counts), _NEAR_TAG)
        shards = shards[counts[shards] > 0]  # a small part of a set has no samples in most of them
        few = shards[: min(self.window, 1 + int((counts[shards].cumsum(0) < _LOOKED_AT).sum()))]
        return torch.nonzero(torch.isin(self.shards, few)).flatten()

    @property
    def ahead(self) -> int:
        """How many samples before its turn in `order` one should be expected. 0: everything is at hand."""
        return 0 if self.shards is None else 3 * len(self) // (4 * self._windows)

    def expect(self, numbers: Sequence[int]) -> None:  # noqa: B027  # nothing is to be done for what is at hand
        """Told of samples that will be read soon, so that what is far away can be fetched meanwhile."""

    @property
    def _windows(self) -> int:
        assert self.shards is not None
        return -(-len(torch.bincount(self.shards)) // self.window)

    @property
    def order_in_words(self) -> str:
        """Nothing for a shuffle of all samples."""
        if self.shards is None:
            return ""
        return f"shuffled within {self.window:,} of {len(torch.bincount(self.shards)):,} shards at a time"

    def select(self, names: Iterable[str]) -> "Source":
        """The same samples with these fields."""
        names, whole = tuple(names), self._whole or self
        if names == whole.selected:
            return whole
        absent = [name for name in names if name not in self.fields]
        if absent:
            raise UserError(
                f"'{self.name}' has no {' and no '.join(absent)}, only {', '.join(self.fields)}: take --views of "
                f"those (of an encoder that has others too, --view), or other --data{self.layout}"
            )
        chosen = copy.copy(whole)
        chosen._whole, chosen.selected = whole, names
        chosen.fingerprint = whole._fingerprint_of(names)
        return chosen

    def field(self, name: str) -> Field:
        """How a field of this source is stored."""
        return self.pixels.field if name == IMAGE else FIELDS[name]

    def _fingerprint_of(self, names: Sequence[str]) -> str:
        return digest(self.fingerprint.encode(), *(name.encode() for name in names))

    @property
    def cache_key(self) -> str:
        """Changes whenever the pixels may have."""
        return self.fingerprint

    def group_name(self, group: Tensor) -> str:
        """Of a number in `groups`."""
        return self.group_names[int(group)] if self.group_names else str(int(group))

    @property
    def median_side(self) -> int:
        """The shorter side of a typical image: small and large images want different set-ups."""
        if self.size is None:
            raise TypeError(f"'{self.name}' does not say how large its images are")
        return min(self.size)

    @property
    def stored_size(self) -> tuple[int, int] | None:
        """(height, width) of the images where all have the same, at hand as arrays or not."""
        return self.size

    @property
    def class_counts(self) -> list[int]:
        """Samples of each class, in the order of `classes`; none without labels."""
        if self.labels is None:
            return []
        counts: list[int] = torch.bincount(self.labels, minlength=len(self.classes)).tolist()
        return counts

    @property
    def missing(self) -> dict[str, int]:
        """How many samples lack each of the selected fields that some lack."""
        counts = {name: int((~there).sum()) for name, there in (self.present or {}).items() if name in self.selected}
        return {name: count for name, count in counts.items() if count}

    @property
    def missing_in_words(self) -> str:
        """Nothing where every sample has everything."""
        counts = ", ".join(f"{name} of {count:,}" for name, count in self.missing.items())
        return f"{counts} of {len(self):,} samples" if counts else ""

    def describe(self) -> dict[str, Any]:
        """What a run's configuration records of its data."""
        return {
            "name": self.name,
            "samples": len(self),
            "size": None if self.stored_size is None else list(self.stored_size),
            "fingerprint": self.fingerprint,
            "fields": list(self.selected),
            "missing": self.missing,
            "classes": list(self.classes),
            "class_counts": self.class_counts,
            "order": self.order_in_words,
        }


class Arrays(Source):
    """A source whose fields are tensors (n, c, H, W), in memory or memory-mapped."""

    arrays: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def id(self, index: int) -> str:
        return str(index)

    def read(self, index: int) -> dict[str, Tensor]:
        return {name: self.arrays[name][index] for name in self.selected}

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        # index_select is several times faster than images[index].
        return {name: self.arrays[name].index_select(0, index) for name in self.selected}


class Subset(Source):
    """Some samples of a source, in the given order. `indices` (n,) int64."""

    def __init__(self, source: Source, indices: Tensor) -> None:
        self.source = source
        self.indices = indices
        self.name = source.name
        self.labels = None if source.labels is None else source.labels[indices]
        self.classes = source.classes
        self.size = source.size
        self.unreadable = source.unreadable
        self.fields, self.selected = source.fields, source.selected
        if source.present is not None:
            self.present = {name: there[indices] for name, there in source.present.items()}
        self.groups = None if source.groups is None else source.groups[indices]
        self.group_names = source.group_names
        self.shards, self.window = None if source.shards is None else source.shards[indices], source.window
        self.fingerprint = digest(source.fingerprint.encode(), indices.numpy().tobytes())

    def __len__(self) -> int:
        return len(self.indices)

    def id(self, index: int) -> str:
        return self.source.id(int(self.indices[index]))

    def read(self, index: int) -> dict[str, Tensor]:
        return self.source.read(int(self.indices[index]))

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return self.source.batch(self.indices[index])

    def expect(self, numbers: Sequence[int]) -> None:
        self.source.expect(self.indices[list(numbers)].tolist())

    def select(self, names: Iterable[str]) -> "Subset":
        names = tuple(names)
        if names == self.selected:
            return self
        chosen = copy.copy(self)  # with labels that may have been renumbered
        chosen.source = self.source.select(names)
        chosen.selected = names
        chosen.fingerprint = digest(chosen.source.fingerprint.encode(), self.indices.numpy().tobytes())
        return chosen

    @property
    def pixels(self) -> Pixels:  # type: ignore[override]
        return self.source.pixels

    @property
    def median_side(self) -> int:
        return self.source.median_side

    @property
    def stored_size(self) -> tuple[int, int] | None:
        return self.source.stored_size


class Names:
    """Many names in one array of bytes.

    Of a list of a million strings every forked worker would get its own copy, as their reference counts are touched.
    """

    def __init__(self, blob: bytes) -> None:
        """`blob` holds the names one after the other, each ended by a zero byte."""
        self.blob = blob
        self._ends = np.flatnonzero(np.frombuffer(blob, dtype=np.uint8) == 0)

    @classmethod
    def of(cls, names: Iterable[bytes]) -> "Names":
        return cls(b"".join(name + b"\0" for name in names))

    def __len__(self) -> int:
        return len(self._ends)

    def raw(self, index: int) -> bytes:
        index = range(len(self))[index]
        return self.blob[self._ends[index - 1] + 1 if index else 0 : self._ends[index]]

    def __getitem__(self, index: int) -> str:
        """Printable also when the file system's bytes are not UTF-8, or no letters at all."""
        return printable(self.raw(index).decode("utf-8", "backslashreplace"))


def digest(*parts: bytes) -> str:
    """16 hexadecimal digits that depend on every byte of the parts and on where one ends."""
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()


def cache_directory() -> Path:
    """Where what can be made again is kept for later runs."""
    return Path(os.environ.get("MANYVIEW_CACHE") or "~/.cache/manyview").expanduser()


def holdout(source: Source, fraction: float = 0.2) -> tuple[Subset, Subset]:
    """(the rest, about `fraction` held out): decided by each sample's id alone, so other samples may come and go; where
    samples have groups by the group's name, so that no group is on both sides."""
    names = map(source.id, range(len(source))) if source.groups is None else map(source.group_name, source.groups)
    hashes = [hashlib.blake2b(name.encode(), digest_size=8, key=_HOLDOUT_TAG).digest() for name in names]
    held_out = torch.tensor([int.from_bytes(h, "little") < fraction * 2**64 for h in hashes])
    if held_out.all() or not held_out.any():
        raise UserError(f"'{source.name}' has too few samples or groups to hold {fraction:.0%} out: use --test-data")
    return Subset(source, torch.nonzero(~held_out).flatten()), Subset(source, torch.nonzero(held_out).flatten())


def check_unreadable(count: int, total: int, listing: str | os.PathLike[str]) -> None:
    """Too many broken images mean a broken set, and training on the rest would hide it. `listing` names them."""
    if count > UNREADABLE_SHARE * total:
        raise UserError(
            f"{count:,} of {total:,} images cannot be read, more than {UNREADABLE_SHARE:.0%}: "
            f"repair or remove them (see {os.fspath(listing)})"
        )


def readable(source: Source, numbers: Iterable[int]) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Numbers and fields of these samples, without those that cannot be read."""
    for number in numbers:
        with suppress(Unreadable):
            yield number, source.read(number)


def track(items: Iterable[T], description: str, total: int | None = None, *, show: bool = True) -> Iterable[T]:
    """The items, with a progress bar on a terminal for as long as it takes, and elsewhere a line every 30 s."""
    console = Console(stderr=True)
    if not show:
        return items
    if not console.is_terminal:
        return _told(items, description, total)
    return rich_track(items, escape(description), total=total, console=console, transient=True)


def _told(items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
    whole = len(items) if total is None and isinstance(items, Sized) else total
    told = time.monotonic()
    for done, item in enumerate(items):
        if (now := time.monotonic()) - told >= SILENCE:
            told = now
            note(f"{description}: {done:,}" + (f" of {whole:,}" if whole is not None else ""))
        yield item


def note(message: str) -> None:
    """One line for the user, beside the output proper."""
    print(printable(message), file=sys.stderr, flush=True)


@cache
def note_once(message: str) -> None:
    """As a command may open a set several times, for each of its splits."""
    note(message)
