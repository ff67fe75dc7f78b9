"""Batches in an order that is a function of (seed, epoch): a step number alone says which samples it takes."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from manyview.data.source import Source, Unreadable
from manyview.errors import UserError

ORDER_TAG = 0x0DE7  # keeps the order apart from everybody else's draws
_MOST_READERS = 16  # more have hardly anything to do beside one GPU
_GIVE_UP = 64  # unreadable images in a row: the disk is gone, not an image

Key = TypeVar("Key")
Value = TypeVar("Value")
Workers = int | Literal["auto"]
"""Processes that read and decode. 0: the process that trains does it."""
Crop = Callable[[Mapping[str, Tensor], int, int], dict[str, Tensor]]
"""Fields (c, H, W) of a sample, its number, epoch -> views (V, c, h, w) by name, of the fields' types."""


@dataclass
class Batch:
    """The samples of one step, as far as this rank is concerned (N of them)."""

    step: int
    epoch: int
    index: Tensor  # (N,) int64
    fields: dict[str, Tensor]  # whole fields (N, c, H, W), or crops (N, V, c, h, w) by the name of the view
    cut: bool = False  # whether they are crops
    unreadable: tuple[int, ...] = ()  # samples that others stand in for
    reasons: tuple[str, ...] = ()  # why, one for each

    def chunk(self, parts: int) -> list["Batch"]:
        """In equal parts."""
        indexes = self.index.chunk(parts)
        pieces = {name: field.chunk(parts) for name, field in self.fields.items()}
        return [
            replace(self, index=index, fields={name: piece[part] for name, piece in pieces.items()})
            for part, index in enumerate(indexes)
        ]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """With every field changed alike."""
        return replace(self, fields={name: function(field) for name, field in self.fields.items()})


class Loader:
    """Iterates over the batches of the steps from `start` to `stop`, across epochs.

    The last incomplete batch of an epoch is dropped. `batch_size` is global: rank r of `world` takes the r-th
    contiguous slice of every batch. An image that cannot be read is replaced by the next one of the source that can
    be, and `index` says which.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        seed: int,
        stop: int,
        start: int = 0,
        workers: Workers = 0,
        crop: Crop | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """`crop` cuts all views of a sample in the workers; it is used when the samples differ in size."""
        if batch_size < 1 or batch_size > len(source):
            raise UserError(
                f"--batch-size {batch_size} is not between 1 and the {len(source):,} samples of '{source.name}': "
                f"use --batch-size {len(source)} or less"
            )
        if batch_size % world:
            raise UserError(
                f"--batch-size {batch_size} cannot be shared evenly by {world} processes: "
                f"use --batch-size {max(world, batch_size - batch_size % world)}"
            )
        if source.size is None and crop is None:
            raise ValueError(f"the images of '{source.name}' differ in size, so a crop is needed to stack them")
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.start, self.stop = start, stop
        self.workers = readers(source, workers)
        self.crop = crop
        self.rank, self.world = rank, world
        self.steps_per_epoch = len(source) // batch_size

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def __iter__(self) -> Iterator[Batch]:
        return read_ahead(_Fetch(self.source, self.crop), self._slices(), self.workers)

    def _slices(self) -> Iterator["_Slice"]:
        share, ahead = self.batch_size // self.world, self.source.ahead
        for step in range(self.start, self.stop):
            epoch, place = divmod(step, self.steps_per_epoch)
            if place == 0 or step == self.start:
                order = self.source.order(self.seed, ORDER_TAG, epoch)
                order = order[: self.steps_per_epoch * self.batch_size]
                if ahead and step - place + self.steps_per_epoch < self.stop:
                    order = torch.cat((order, self.source.order(self.seed, ORDER_TAG, epoch + 1)))
            first = place * self.batch_size + self.rank * share
            soon = order[first + ahead : first + ahead + share].tolist() if ahead else []
            yield step, epoch, order[first : first + share].tolist(), soon


_Slice = tuple[int, int, list[int], list[int]]  # step, epoch, numbers of its samples and of some that will follow


@dataclass
class _Fetch:
    source: Source
    crop: Crop | None

    def __call__(self, which: _Slice) -> Batch:
        step, epoch, numbers, soon = which
        if soon:
            self.source.expect(numbers + soon)
        if self.source.size is not None:
            index = torch.tensor(numbers)
            return Batch(step, epoch, index, self.source.batch(index))
        assert self.crop is not None
        fields: dict[str, Tensor] = {}
        kept = []
        failures: dict[int, str] = {}
        for place, number in enumerate(numbers):
            sample, stand_in, failed = _read_or_next(self.source, number)
            for name, crops in self.crop(sample, stand_in, epoch).items():
                if place == 0:
                    fields[name] = crops.new_empty(len(numbers), *crops.shape)
                fields[name][place] = crops  # while they are in the cache; a list of them would need the memory twice
            kept.append(stand_in)
            failures |= failed
        return Batch(step, epoch, torch.tensor(kept), fields, True, tuple(failures), tuple(failures.values()))


def _read_or_next(source: Source, number: int) -> tuple[dict[str, Tensor], int, dict[int, str]]:
    """This sample or the next that can be read, its number, and the reasons of those passed over."""
    failed: dict[int, str] = {}
    for ahead in range(min(_GIVE_UP, len(source))):
        candidate = (number + ahead) % len(source)
        try:
            return source.read(candidate), candidate, failed
        except Unreadable as reason:
            failed[candidate] = str(reason)
    raise UserError(
        f"{len(failed)} images of '{source.name}' in a row cannot be read, from {source.id(number)} on "
        f"({failed[number]}): check that the files are still there"
    )


class _Calls(Dataset[Value], Generic[Key, Value]):
    """A function as a dataset. A `UserError` travels as a value, for a DataLoader would wrap it in a traceback."""

    def __init__(self, function: Callable[[Key], Value]) -> None:
        self.function = function

    def __getitem__(self, key: Key) -> Value | UserError:  # type: ignore[override]
        try:
            return self.function(key)
        except UserError as error:
            return error


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def readers(source: Source, workers: Workers) -> int:
    """How many processes read `source`. `auto`: none for images at hand as arrays; for those that are decoded one for
    each processor that the ranks on this machine leave each other, for decoding keeps a training step waiting."""
    if workers != "auto":
        return workers
    if source.size is not None:
        return 0
    return max(1, min(_MOST_READERS, processors() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def read_ahead(function: Callable[[Key], Value], keys: Iterable[Key], workers: int) -> Iterator[Value]:
    """`map(function, keys)`, in order, by worker processes that run ahead, starting now."""
    calls: DataLoader[Value | UserError] = DataLoader(
        _Calls(function),
        batch_size=None,
        sampler=keys,
        num_workers=workers,
        collate_fn=_as_is,
        worker_init_fn=_start_worker,
        generator=torch.Generator(),  # otherwise every iteration would draw from the global one
    )
    return _unwrap(iter(calls))


def _unwrap(values: Iterator[Value | UserError]) -> Iterator[Value]:
    try:
        for value in values:
            if isinstance(value, UserError):
                raise value
            yield value
    finally:
        del values  # ends the workers now, and not when a traceback that holds this frame is collected


def _as_is(value: Value) -> Value:
    return value


def _start_worker(_: int) -> None:
    """^C and a batch system's SIGTERM reach workers too, but only the main process knows when it is done with them."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":  # elsewhere nothing tells who sent a signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_obey_parent, daemon=True).start()


def _obey_parent() -> None:
    assert sys.platform == "linux"
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
