"""What the page shows of the data: some samples with their views, how similar features are, and who is whose neighbour."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import counter
from manyview.data.source import Source, Subset, Unreadable
from manyview.diagnose import (
    alignment,
    different_similarity,
    effective_rank,
    nearest,
    positive_similarity,
    separation,
    uniformity,
)
from manyview.evaluate.features import extract
from manyview.views import Augment

__all__ = ["Geometry", "Neighbourhood", "Pictures", "Sample", "SampleViews", "collect"]

_ORDER = 0x7265706F7274  # keeps the choice of samples apart from other uses of the seed
_CHUNK = 64


@dataclass(frozen=True)
class Sample:
    """One image as it is stored. (3, H, W) uint8."""

    name: str
    image: Tensor
    label: str | None


@dataclass(frozen=True)
class SampleViews:
    """One image and its views. (V, 3, h, w) uint8."""

    sample: Sample
    views: Tensor


@dataclass(frozen=True)
class Neighbourhood:
    """One image and those nearest to it, nearest first."""

    query: Sample
    neighbours: tuple[Sample, ...]
    similarities: tuple[float, ...]


@dataclass(frozen=True)
class Geometry:
    """How one encoder's unit features lie; see `manyview.diagnose`."""

    same: Tensor  # (N,) similarity of the views of each image
    different: Tensor  # (N(N-1)/2,) similarity of the views of two images
    separation: float
    alignment: float
    uniformity: float
    effective_rank: float
    dim: int
    agreement: float | None = None  # share of the nearest neighbours with the image's own label


@dataclass(frozen=True)
class Pictures:
    """What `collect` found, by encoder ("trained", "random") where there is one; sections without content stay empty."""

    source: str
    views: tuple[SampleViews, ...] = ()
    geometry: Mapping[str, Geometry] = field(default_factory=dict)
    neighbours: tuple[Neighbourhood, ...] = ()
    pool: int = 0  # images among which neighbours were sought


def collect(
    source: Source,
    augment: Augment,
    encoder: nn.Module | None = None,
    random: nn.Module | None = None,
    *,
    rows: int = 6,
    pairs: int = 128,
    queries: int = 8,
    neighbours: int = 6,
    pool: int = 1000,
    seed: int = 0,
    progress: bool = False,
) -> Pictures:
    """`rows` samples with their views, similarities over `pairs` images, and neighbours of `queries` images among `pool`.

    `encoder` and `random` are frozen encoders: images of uint8 or [0, 1] in, features out. Without an `encoder` only views
    are shown. The choice of samples depends on `seed` and the number of samples alone; unreadable images are passed over.
    """
    order = counter.permutation(len(source), seed, _ORDER)
    chosen = list(islice(_readable(source, order), max(rows, pairs if encoder is not None else 0)))
    shown = tuple(_sample_views(source, augment, chosen[:rows]))
    encoders = {name: e for name, e in (("trained", encoder), ("random", random)) if e is not None}
    if encoder is None or len(chosen) < 2:
        return Pictures(source.name, shown)
    part = Subset(source, order[:pool])
    geometry = {}
    for name, each in encoders.items():
        found = extract(each, part, batch_size=_CHUNK, progress=progress)
        bank = F.normalize(found.embeddings, dim=1)
        index = nearest(bank, bank, neighbours, exclude=torch.arange(len(bank)))
        agreement = float((found.labels[index[1]] == found.labels[:, None]).double().mean()) if _labelled(source) else None
        geometry[name] = _geometry(each, source, augment, chosen[:pairs], agreement)
        if name == "trained":
            where, rows_near = part.indices[found.index], index
            asked = _queries(found.labels, queries)
    hoods = tuple(_neighbourhood(source, where, row, rows_near) for row in asked)
    return Pictures(source.name, shown, geometry, hoods, len(where))
