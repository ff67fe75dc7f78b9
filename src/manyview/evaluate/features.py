"""Frozen features of a whole source, in its own order, with the preparation of the images said in words."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from rich.console import Console
from rich.progress import track as rich_track
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as TF

from manyview.data.source import Source, Unreadable
from manyview.errors import UserError

__all__ = ["Features", "checksum", "extract", "frozen", "image_size", "locate", "preparation", "track"]

SMALL = 96  # px; smaller images show one object from edge to edge, so nothing is cropped away
Item = TypeVar("Item")


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
    encoder: nn.Module,
    source: Source,
    *,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Features:
    """Features (on the CPU) of every readable image of `source`; `encoder` takes uint8 images of its `image_size`.

    `workers` threads read ahead. A `device` moves the encoder there; None leaves it where it is.
    """
    place = locate(encoder, device)
    prepare, words = preparation(source.size, image_size(encoder))
    embeddings: Tensor | None = None
    kept: list[Tensor] = []
    filled = 0
    batches = _read_ahead(source, prepare, batch_size, workers)
    with frozen(encoder), torch.no_grad():
        for images, index in track(batches, f"features of {source.name}", -(-len(source) // batch_size), progress):
            if len(index) == 0:
                continue
            rows = encoder(images.to(place)).float().cpu()
            if embeddings is None:  # one allocation: for large sets a list and its concatenation would need twice as much
                embeddings = rows.new_empty(len(source), rows.shape[1])
            if not rows.isfinite().all():
                raise UserError(f"the encoder gives features that are not finite on {source.name}: was its training stable?")
            embeddings[filled : filled + len(rows)] = rows
            filled += len(rows)
            kept.append(index)
    if embeddings is None:
        raise UserError(f"not one of the {len(source)} images of {source.name} can be read: check the files")
    index = torch.cat(kept)
    labels = torch.full((filled,), -1) if source.labels is None else source.labels[index]
    lost = torch.ones(len(source), dtype=torch.bool).index_fill(0, index, False).nonzero()[:, 0]
    return Features(embeddings[:filled], labels, index, tuple(lost.tolist()), words)


def locate(encoder: nn.Module, device: torch.device | str | None) -> torch.device:
    """Where the encoder computes, after it was moved to `device` if one is given."""
    if device is not None:
        encoder.to(device)
        return torch.device(device)
    return next((tensor.device for tensor in encoder.state_dict().values()), torch.device("cpu"))


def image_size(encoder: nn.Module) -> int:
    size = encoder.image_size
    if not isinstance(size, int):
        raise TypeError(f"{type(encoder).__name__}.image_size is {size!r}, not an int")
    return size


def preparation(stored: tuple[int, int] | None, size: int) -> tuple[Callable[[Tensor], Tensor], str]:
    """How uint8 images (…, 3, H, W) of the `stored` size (None: various) become size×size, and the words for it."""
    target = f"{size}×{size}"
    if stored == (size, size):
        return lambda images: images, f"{target} as stored"
    if stored is not None and stored[0] == stored[1] <= SMALL:
        return partial(TF.resize, size=[size, size], antialias=True), f"resized from {stored[0]}×{stored[1]} to {target}"
    shorter = round(size * 8 / 7)  # 256 for 224
    words = f"shorter side resized to {shorter}, centre crop {target}"

    def resize_and_crop(images: Tensor) -> Tensor:
        if images.shape[-2:] == (size, size):
            return images
        resized: Tensor = TF.resize(images, size=[shorter], antialias=True)
        return TF.center_crop(resized, [size, size])  # type: ignore[no-any-return]

    return resize_and_crop, words if stored is not None else f"{words} ({target} as stored)"


def _read_ahead(
    source: Source, prepare: Callable[[Tensor], Tensor], batch_size: int, workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, sample numbers) in the order of the source, batch by batch."""
    parts = torch.arange(len(source)).split(batch_size)
    read = partial(_read, source, prepare)
    if workers == 0:
        yield from map(read, parts)
        return
    waiting: deque[Future[tuple[Tensor, Tensor]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for part in parts:
            waiting.append(pool.submit(read, part))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _read(source: Source, prepare: Callable[[Tensor], Tensor], index: Tensor) -> tuple[Tensor, Tensor]:
    """The prepared images (N, 3, size, size) uint8 of those samples that can be read, and their numbers."""
    if source.size is not None:
        return prepare(source.batch(index)), index
    images, kept = [], []
    for number in index.tolist():
        try:
            images.append(prepare(source.read(number)))
        except Unreadable:
            continue
        kept.append(number)
    return torch.stack(images) if images else torch.empty(0), torch.tensor(kept, dtype=torch.int64)


@contextmanager
def frozen(encoder: nn.Module) -> Iterator[None]:
    """Insists that the encoder is in eval mode and leaves with the state that it came with."""
    if any(module.training for module in encoder.modules()):
        raise RuntimeError("the encoder is in training mode: batch statistics would leak into its features")
    before = checksum(encoder)
    yield
    if checksum(encoder) != before:
        raise RuntimeError("the encoder changed while it was evaluated: its parameters or buffers are not those it had")


def checksum(module: nn.Module) -> str:
    """Digest of all parameters and buffers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def track(items: Iterable[Item], what: str, total: int | None = None, progress: bool = True) -> Iterator[Item]:
    """Passes the items on, with a bar on a terminal (standard error, so that output can be piped) and silently elsewhere."""
    console = Console(stderr=True)
    if total is None and isinstance(items, Sized):
        total = len(items)
    shown = progress and console.is_terminal
    yield from rich_track(items, what, total, console=console, transient=True, disable=not shown)
