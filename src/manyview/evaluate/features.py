"""Frozen features of a whole source, in its own order, with the preparation of the images said in words."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as TF

from manyview.data.loader import read_ahead
from manyview.data.source import Source, Unreadable, track
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError

__all__ = ["Features", "Preparation", "checksum", "extract", "frozen"]

SMALL = 96  # px


@dataclass(frozen=True)
class Features:
    """What a frozen encoder makes of the readable samples of a source."""

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

    def __len__(self) -> int:
        return len(self.embeddings)

    def to(self, device: torch.device | str) -> "Features":
        return replace(self, embeddings=self.embeddings.to(device), labels=self.labels.to(device))


def extract(
    encoder: FrozenEncoder,
    source: Source,
    *,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Features:
    """Features (on the CPU) of every readable image of `source`.

    `workers` processes read ahead. A `device` moves the encoder there; None leaves it where it is.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} holds no image: use --batch-size 256")
    encoder.to(device)
    prepare = Preparation(source.size, encoder.image_size)
    parts = torch.split(torch.arange(len(source)), batch_size)
    batches = read_ahead(_Read(source, prepare), parts, workers)  # forked before the progress bar has a thread
    embeddings: Tensor | None = None
    kept: list[Tensor] = []
    filled = 0
    with frozen(encoder), torch.no_grad():
        for images, index in track(batches, f"features of {source.name}", len(parts), show=progress):
            if len(index) == 0:
                continue
            rows = encoder(images.to(encoder.mean.device)).float().cpu()
            if (
                embeddings is None
            ):  # one allocation: for large sets a list and its concatenation would need twice as much
                embeddings = rows.new_empty(len(source), rows.shape[1])
            if not rows.isfinite().all():
                raise UserError(
                    f"the encoder gives features that are not finite on {source.name}: was its training stable?"
                )
            embeddings[filled : filled + len(rows)] = rows
            filled += len(rows)
            kept.append(index)
    if embeddings is None:
        raise UserError(f"not one of the {len(source)} images of {source.name} can be read: check the files")
    index = torch.cat(kept)
    labels = torch.full((filled,), -1) if source.labels is None else source.labels[index]
    lost = torch.ones(len(source), dtype=torch.bool).index_fill(0, index, False).nonzero()[:, 0]
    return Features(embeddings[:filled], labels, index, tuple(lost.tolist()), str(prepare))


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

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 (…, 3, H, W) -> uint8 (…, 3, size, size), antialiased."""
        height, width = images.shape[-2:]
        target = [self.size, self.size]
        if [height, width] == target:
            return images
        if self.whole:
            return TF.resize(images, target, antialias=True)  # type: ignore[no-any-return]
        if max(height, width) > 4 * min(
            height, width
        ):  # only the middle is kept, and a thin strip enlarged fills the memory
            images = TF.center_crop(images, [min(height, 4 * width), min(width, 4 * height)])
        return TF.center_crop(TF.resize(images, [self.shorter], antialias=True), target)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Read:
    source: Source
    prepare: Preparation

    def __call__(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Images (n, 3, size, size) uint8 of those of the samples (N,) that can be read, and their numbers (n,)."""
        if self.source.size is not None:
            return self.prepare(self.source.batch(index)), index
        images, kept = [], []
        for number in index.tolist():
            try:
                images.append(self.prepare(self.source.read(number)))
            except Unreadable:
                continue
            kept.append(number)
        return torch.stack(images) if images else torch.empty(0), torch.tensor(kept, dtype=torch.int64)


@contextmanager
def frozen(encoder: FrozenEncoder) -> Iterator[None]:
    """Insists that the encoder is in eval mode and leaves with the state that it came with."""
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
