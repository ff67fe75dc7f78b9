"""Frozen features of all samples of a source, in its order, and how its images are resized."""

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.data.loader import Workers, read_ahead, readers
from manyview.data.source import Source, cache_directory, readable, track
from manyview.encoders import FrozenEncoder
from manyview.encoders.preparation import Preparation
from manyview.errors import UserError
from manyview.fields import IMAGE

PROBED = 9600  # features of one layer
IN_MEMORY = 2**30  # bytes


@dataclass(frozen=True)
class Features:
    """Features of the readable samples of a source."""

    embeddings: Tensor
    """(n, F) float32."""
    labels: Tensor
    """(n,) int64; -1 throughout when the source has no labels."""
    index: Tensor
    """(n,) numbers of the samples in the source."""
    unreadable: tuple[int, ...] = ()
    """Samples that were left out because their image cannot be read."""
    preprocess: str = ""
    """How the images were brought to the encoder's size."""
    groups: Tensor | None = None
    """(n,) int64, where the source has groups: no split may cut through one."""

    def __len__(self) -> int:
        return len(self.embeddings)

    def to(self, device: torch.device | str) -> "Features":
        return replace(self, embeddings=self.embeddings.to(device), labels=self.labels.to(device))


class Pass(TypedDict, total=False):
    """One pass over a source: images that the encoder gets at once (256), processes that read ahead (none), where the
    encoder is moved (None leaves it where it is), and whether progress is shown."""

    batch_size: int
    workers: Workers
    device: torch.device | str | None
    progress: bool


def extract(encoder: FrozenEncoder, source: Source, **how: Unpack[Pass]) -> Features:
    """Features (on the CPU) of every readable image of `source`."""
    [found] = extract_all([encoder], source, **how)
    return found[""]


def extract_all(
    encoders: Sequence[FrozenEncoder], source: Source, layers: Sequence[str] = (), **how: Unpack[Pass]
) -> list[dict[str, Features]]:
    """Features of several encoders, or of these layers of each, reduced by `probe_features`, by layer. Every image is
    read and decoded once, as that often takes longer than the encoders do.

    If all of them together could exceed a GiB, they are kept in temporary files, which disappear with the features.
    """
    widths = [PROBED * len(layers) if layers else encoder.num_features for encoder in encoders]
    several = len(encoders) > 1 or len(layers) > 0
    large = several and 4 * len(source) * sum(widths) > IN_MEMORY
    return _gather(encoders, source, layers, _OnDisk if large else partial(_InMemory, len(source)), **how)


def left_out_before(*sources: Source) -> set[tuple[str, str]]:
    """Images that a packed copy has no room for, as they cannot be read; both parts of a held-out split list them."""
    return {image for source in sources if source.size is not None for image in source.unreadable}


def probe_features(output: Tensor) -> Tensor:
    """What a classifier gets of a layer: vectors (N, F) as they are, of tokens (N, T, F) the mean, of maps (N, C, H, W)
    the maxima of g×g regions, where g is the largest grid with C g² ≤ 9600.

    CMC trains "on top of the feature maps of each layer, as proposed by [84]" (Table 8), and [84] brings the maps to
    about 9,000 numbers each. The text does not say how; the limit of 9600 gives AlexNet's conv1 … conv5 the grids 10,
    6, 5, 5, 6 of CMC's published code, which takes maxima as well, and for conv5 it is what pool5 gives.
    """
    if output.ndim == 4:
        grid = max(1, math.isqrt(PROBED // output.shape[1]))
        height, width = (min(grid, side) for side in output.shape[2:])
        return F.adaptive_max_pool2d(output, (height, width)).flatten(1)
    if output.ndim == 3:
        return output.mean(1)
    return output.flatten(1).clone()


def _gather(
    encoders: Sequence[FrozenEncoder],
    source: Source,
    layers: Sequence[str],
    room: Callable[[int], "_InMemory | _OnDisk"],
    *,
    batch_size: int = 256,
    workers: Workers = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> list[dict[str, Features]]:
    """`room` is asked for a place of so many columns for each layer of each encoder."""
    numbers = in_batches(source, batch_size)
    kept: list[Tensor] = []
    caches: list[dict[str, _InMemory | _OnDisk]] = [{} for _ in encoders]
    with ExitStack() as stack:
        for encoder in encoders:
            stack.enter_context(frozen(encoder.to(device)))
        for index, found in computed(encoders, source, numbers, layers, workers=workers, progress=progress):
            for cache, each in zip(caches, found, strict=True):
                for name, rows in each.items():
                    if name not in cache:
                        cache[name] = room(rows.shape[1])
                    cache[name].add(rows)
            kept.append(index)
    index = torch.cat(kept)
    if not len(index):
        raise none_readable(source)
    labels = torch.full((len(index),), -1) if source.labels is None else source.labels[index]
    groups = None if source.groups is None else source.groups[index]
    lost = torch.ones(len(source), dtype=torch.bool).index_fill(0, index, False).nonzero()[:, 0]
    prepared = [str(Preparation(source.size, encoder.image_size)) for encoder in encoders]
    return [
        {
            name: Features(rows.tensor(), labels, index, tuple(lost.tolist()), words, groups)
            for name, rows in cache.items()
        }
        for cache, words in zip(caches, prepared, strict=True)
    ]


def in_batches(source: Source, batch_size: int) -> Sequence[Tensor]:
    """The numbers of the samples that the encoder gets at once."""
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} holds no image: use --images-per-pass 256")
    return torch.split(torch.arange(len(source)), batch_size)


def computed(
    encoders: Sequence[FrozenEncoder],
    source: Source,
    numbers: Sequence[Tensor],
    layers: Sequence[str] = (),
    *,
    workers: Workers = 0,
    progress: bool = False,
) -> Iterator[tuple[Tensor, list[dict[str, Tensor]]]]:
    """For each batch of `numbers` those that can be read (n,), and what each encoder makes of these samples, by layer,
    as float32 (n, F) on the CPU; nothing where none can."""
    source = source.select(dict.fromkeys(name for encoder in encoders for name in encoder.card.fields))
    for encoder in encoders:
        check_channels(encoder, source)
    sizes = {encoder.image_size: Preparation(source.size, encoder.image_size) for encoder in encoders}
    # The workers are forked here, before the progress bar has a thread.
    batches = read_ahead(_Read(source, tuple(sizes.values())), numbers, readers(source, workers))
    for prepared, index in track(batches, f"features of {source.name}", len(numbers), show=progress):
        found = [_rows(encoder, prepared[encoder.image_size], layers) if len(index) else {} for encoder in encoders]
        if not all(rows.isfinite().all() for each in found for rows in each.values()):
            raise UserError(
                f"the encoder gives features that are not finite on {source.name}: was its training stable?"
            )
        yield index, found


@torch.no_grad()
def _rows(encoder: FrozenEncoder, fields: Mapping[str, Tensor], layers: Sequence[str]) -> dict[str, Tensor]:
    """Features (n, F) by layer."""
    samples = {name: each.to(encoder.mean.device) for name, each in fields.items()}
    found = encoder.layers(samples, layers, keep=probe_features) if layers else {"": encoder(samples)}
    return {name: each.float().cpu() for name, each in found.items()}


def check_channels(encoder: FrozenEncoder, source: Source) -> None:
    """Whether the encoder takes such images."""
    channels = encoder.card.in_channels
    if IMAGE in encoder.card.fields and channels != source.pixels.channels:
        raise UserError(
            f"this encoder takes {channels} channels, not the {source.pixels.channels} of {source.name}'s images"
        )


def none_readable(source: Source) -> UserError:
    return UserError(f"not one of the {len(source)} images of {source.name} can be read: check the files")


class _InMemory:
    """A matrix that grows by rows, in one allocation: a list and its concatenation would need twice as much."""

    def __init__(self, most: int, width: int) -> None:
        self.rows, self.filled = torch.empty(most, width), 0

    def add(self, rows: Tensor) -> None:
        self.rows[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)

    def tensor(self) -> Tensor:
        return self.rows[: self.filled]


class _OnDisk:
    """The same, written row by row, so that a full disk is an error like any other, and mapped at the end."""

    def __init__(self, width: int) -> None:
        self.width, self.directory = width, cache_directory()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=self.directory)  # noqa: SIM115  # the mapping outlives this object

    def add(self, rows: Tensor) -> None:
        try:
            self.file.write(rows.contiguous().numpy().data)
        except OSError as error:
            raise UserError(
                f"{self.directory} cannot hold the features of all --layer ({error.strerror}): "
                "set MANYVIEW_CACHE to a directory with room for them, or ask for fewer"
            ) from error

    def tensor(self) -> Tensor:
        with self.file:
            self.file.flush()
            return torch.from_numpy(np.memmap(self.file, dtype=np.float32, mode="r+").reshape(-1, self.width))


@dataclass(frozen=True)
class _Read:
    source: Source
    preparations: tuple[Preparation, ...]

    def __call__(self, index: Tensor) -> tuple[dict[int, dict[str, Tensor]], Tensor]:
        """By size the fields (n, c, size, size) of those of the samples (N,) that can be read, and their numbers."""
        if self.source.size is not None:
            fields = self.source.batch(index)
            return {each.size: each(fields) for each in self.preparations}, index
        samples = {
            number: [each({name: field[None] for name, field in fields.items()}) for each in self.preparations]
            for number, fields in readable(self.source, index.tolist())
        }
        names = self.source.selected if samples else ()
        prepared = {
            each.size: {name: torch.cat([sample[place][name] for sample in samples.values()]) for name in names}
            for place, each in enumerate(self.preparations)
        }
        return prepared, torch.tensor(list(samples), dtype=torch.int64)


@contextmanager
def frozen(encoder: FrozenEncoder) -> Iterator[None]:
    """Raises an error if the encoder is not in eval mode, or if its state changes within."""
    if any(module.training for module in encoder.modules()):
        raise RuntimeError("the encoder is in training mode: batch statistics would leak into its features")
    before = checksum(encoder)
    yield
    if checksum(encoder) != before:
        raise RuntimeError("the encoder changed while it was evaluated: its parameters or buffers are not those it had")


def checksum(encoder: FrozenEncoder) -> str:
    """Digest of all parameters and buffers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in chain(encoder.named_parameters(), encoder.named_buffers()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
