"""Frozen features of all samples of a source, in its order, and how its images are resized."""

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.atomic import replacing
from manyview.data.loader import Workers, read_ahead, readers
from manyview.data.source import Source, cache_directory, readable, track
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError
from manyview.fields import FIELDS, IMAGE, Field

SMALL = 96  # px
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
    room = partial(_InMemory, len(source))
    return _gather(encoder, source, lambda samples: {"": encoder(samples)}, room, **how)[""]


def extract_layers(
    encoder: FrozenEncoder, source: Source, names: Sequence[str], **how: Unpack[Pass]
) -> dict[str, Features]:
    """The same for several layers in one pass over the images, each reduced by `probe_features`.

    If all layers together could exceed a GiB, they are kept in temporary files, which disappear with the features.
    """
    large = 4 * len(source) * PROBED * len(names) > IN_MEMORY
    room = _OnDisk if large else partial(_InMemory, len(source))
    return _gather(encoder, source, lambda samples: encoder.layers(samples, names, keep=probe_features), room, **how)


def embed(encoder: FrozenEncoder, source: Source, out: str | Path, **how: Unpack[Pass]) -> Features:
    """Writes an .npz file with `ids`, `embeddings` and, where known, `labels` and `classes`; returns what it wrote."""
    features = extract(encoder, source, **how)
    arrays = {
        "ids": np.array([source.id(number) for number in features.index.tolist()], dtype=np.str_),
        "embeddings": features.embeddings.numpy(),
    }
    if source.labels is not None:
        arrays |= {"labels": features.labels.numpy(), "classes": np.array(source.classes, dtype=np.str_)}
    with replacing(Path(out)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return features


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
    encoder: FrozenEncoder,
    source: Source,
    compute: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    room: Callable[[int], "_InMemory | _OnDisk"],
    *,
    batch_size: int = 256,
    workers: Workers = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> dict[str, Features]:
    """What `compute` makes of the samples, by name; `room` is asked for a place of so many columns for each."""
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} holds no image: use --images-per-pass 256")
    encoder.to(device)
    source, channels = source.select(encoder.card.fields), encoder.card.in_channels
    if IMAGE in source.selected and channels != source.pixels.channels:
        raise UserError(
            f"this encoder takes {channels} channels, not the {source.pixels.channels} of {source.name}'s images"
        )
    prepare = Preparation(source.size, encoder.image_size)
    parts = torch.split(torch.arange(len(source)), batch_size)
    # The workers are forked here, before the progress bar has a thread.
    batches = read_ahead(_Read(source, prepare), parts, readers(source, workers))
    kept: list[Tensor] = []
    caches: dict[str, _InMemory | _OnDisk] = {}
    with frozen(encoder), torch.no_grad():
        for fields, index in track(batches, f"features of {source.name}", len(parts), show=progress):
            if len(index) == 0:
                continue
            samples = {name: field.to(encoder.mean.device) for name, field in fields.items()}
            for name, each in compute(samples).items():
                rows = each.float().cpu()
                if not rows.isfinite().all():
                    raise UserError(
                        f"the encoder gives features that are not finite on {source.name}: was its training stable?"
                    )
                if name not in caches:
                    caches[name] = room(rows.shape[1])
                caches[name].add(rows)
            kept.append(index)
    if not kept:
        raise UserError(f"not one of the {len(source)} images of {source.name} can be read: check the files")
    index = torch.cat(kept)
    labels = torch.full((len(index),), -1) if source.labels is None else source.labels[index]
    groups = None if source.groups is None else source.groups[index]
    lost = torch.ones(len(source), dtype=torch.bool).index_fill(0, index, False).nonzero()[:, 0]
    return {
        name: Features(rows.tensor(), labels, index, tuple(lost.tolist()), str(prepare), groups)
        for name, rows in caches.items()
    }


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
class Preparation:
    """How images of a source whose images are `stored` high and wide (None: various) become size×size."""

    stored: tuple[int, int] | None
    size: int

    @property
    def whole(self) -> bool:
        """Small squares show one object from edge to edge: nothing is cropped away."""
        return self.stored is not None and self.stored[0] == self.stored[1] <= SMALL

    @property
    def shorter(self) -> int:
        return round(self.size * 8 / 7)  # 256 for 224

    def __str__(self) -> str:
        target = f"{self.size}×{self.size}"
        if self.stored == (self.size, self.size):
            return f"{target} as stored"
        if self.stored is not None and self.whole:
            return f"resized from {self.stored[0]}×{self.stored[1]} to {target}"
        words = f"shorter side resized to {self.shorter}, centre crop {target}"
        return words if self.stored else f"{words} ({target} as stored)"

    def __call__(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields (N, c, H, W) -> (N, c, size, size), of the same types."""
        return {name: self._prepared(images, FIELDS[name]) for name, images in fields.items()}

    def _prepared(self, images: Tensor, field: Field) -> Tensor:
        height, width = images.shape[-2:]
        if self.whole or (height, width) == (self.size, self.size):
            return field.resized(images, (self.size, self.size))
        # Only the middle is kept, and a thin strip enlarged fills the memory.
        images = _centre(images, min(height, 4 * width), min(width, 4 * height))
        height, width = (int(self.shorter * side / min(images.shape[-2:])) for side in images.shape[-2:])
        return _centre(field.resized(images, (height, width)), self.size, self.size)


def _centre(images: Tensor, height: int, width: int) -> Tensor:
    top, left = (round((had - kept) / 2) for had, kept in zip(images.shape[-2:], (height, width), strict=True))
    return images[..., top : top + height, left : left + width]


@dataclass(frozen=True)
class _Read:
    source: Source
    prepare: Preparation

    def __call__(self, index: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Fields (n, c, size, size) of those of the samples (N,) that can be read, and their numbers (n,)."""
        if self.source.size is not None:
            return self.prepare(self.source.batch(index)), index
        samples = {
            number: self.prepare({name: field[None] for name, field in fields.items()})
            for number, fields in readable(self.source, index.tolist())
        }
        names = self.source.selected if samples else ()
        fields = {name: torch.cat([sample[name] for sample in samples.values()]) for name in names}
        return fields, torch.tensor(list(samples), dtype=torch.int64)


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
