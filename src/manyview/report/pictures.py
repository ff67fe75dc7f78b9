"""What the page shows of the data: samples with their views, similarities of features, nearest neighbours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.data.source import Source, Subset, readable
from manyview.diagnose.embeddings import (
    alignment,
    different_similarity,
    effective_rank,
    nearest,
    positive_similarity,
    separation,
    uniformity,
)
from manyview.encoders import FrozenEncoder
from manyview.evaluate.features import extract
from manyview.fields import FIELDS, IMAGE, eight_bits
from manyview.views import Augment

_TAG = 0x7265706F7274  # keeps the choice of samples apart from other uses of the seed
_THUMBNAIL = 128  # pixels of the longer side; larger images are shrunk, since some sets hold photographs of 50 MB each


@dataclass(frozen=True)
class Sample:
    """A thumbnail (3, H, W) uint8, with the sample's name and the name of its class."""

    name: str
    image: Tensor
    label: str | None = None


@dataclass(frozen=True)
class SampleViews:
    """A sample and thumbnails of its views."""

    sample: Sample
    views: tuple[Tensor, ...]


@dataclass(frozen=True)
class Neighbourhood:
    """A sample and those nearest to it, nearest first, with their cosine similarities."""

    query: Sample
    neighbours: tuple[Sample, ...]
    similarities: tuple[float, ...]


@dataclass(frozen=True)
class Geometry:
    """Numbers of one encoder's features, centred and of unit length, by the functions of `diagnose.embeddings`."""

    same: Tensor  # (N,) similarity of the views of each image
    different: Tensor  # (N(N-1)/2,) similarity of the views of two images
    separation: float
    alignment: float
    uniformity: float
    effective_rank: float
    agreement: float | None  # share of the nearest neighbours that have the image's own label; None without labels


@dataclass(frozen=True)
class Pictures:
    """What `collect` found; geometry by encoder ("trained", "random")."""

    source: str
    views: tuple[SampleViews, ...] = ()
    geometry: Mapping[str, Geometry] = field(default_factory=dict)
    neighbours: tuple[Neighbourhood, ...] = ()
    pool: int = 0  # images among which neighbours were sought


def collect(
    source: Source,
    augment: Augment,
    encoder: FrozenEncoder | None = None,
    random: FrozenEncoder | None = None,
    *,
    rows: int = 6,
    pairs: int = 128,
    queries: int = 8,
    neighbours: int = 6,
    pool: int = 1000,
    seed: int = 0,
    progress: bool = False,
) -> Pictures:
    """Views of `rows` samples, similarities over `pairs` images, and neighbours of `queries` images among `pool`.

    `random` is the same encoder before any training. Without an `encoder` only views are shown. Which samples are
    chosen depends on `seed` and their number alone; unreadable ones are passed over.
    """
    source, order = source.select(dict.fromkeys((IMAGE, *augment.fields))), shuffled(source, seed)
    shown = tuple(
        _sample_views(source, augment, number, sample)
        for number, sample in islice(readable(source, order.tolist()), rows)
    )
    if encoder is None:
        return Pictures(source.name, shown)
    encoders = {"trained": encoder} if random is None else {"trained": encoder, "random": random}
    views = view_features(encoders, augment, islice(readable(source, order.tolist()), pairs))
    part = Subset(source, order[:pool])
    features = {name: extract(each, part, batch_size=64, progress=progress) for name, each in encoders.items()}
    near = {name: nearest_others(each.embeddings, neighbours) for name, each in features.items()}
    geometry = {
        name: _geometry(
            views[name], None if source.labels is None else _agreement(features[name].labels, near[name][1])
        )
        for name in encoders
        if min(views[name].shape[:2]) > 1  # a single view or image has nothing to be compared with
    }
    numbers = part.indices[features["trained"].index].tolist()  # of the bank's rows, in the source
    asked = one_of_each_class(features["trained"].labels, queries)
    hoods = tuple(neighbourhood(source, numbers, row, *near["trained"]) for row in asked)
    return Pictures(source.name, shown, geometry, hoods, len(numbers))


def shuffled(source: Source, seed: int) -> Tensor:
    """The samples in the order in which they are considered for the page."""
    return source.some(seed, _TAG)


def _sample(source: Source, number: int, sample: Mapping[str, Tensor]) -> Sample:
    label = None if source.labels is None else source.classes[int(source.labels[number])]
    return Sample(source.id(number), thumbnail(FIELDS[IMAGE].show(eight_bits(sample[IMAGE]))), label)


def _sample_views(source: Source, augment: Augment, number: int, sample: Mapping[str, Tensor]) -> SampleViews:
    views = augment.values(augment.views_of([sample], [number], 0))
    shown = torch.stack([FIELDS[name].show(view[:, 0]) for name, view in views.items()], 1).flatten(0, 1)
    return SampleViews(_sample(source, number, sample), tuple(map(thumbnail, shown.mul(255).round().byte())))


@torch.no_grad()
def view_features(
    encoders: Mapping[str, FrozenEncoder], augment: Augment, samples: Iterator[tuple[int, dict[str, Tensor]]]
) -> dict[str, Tensor]:
    """Features (V, N, F) by encoder; a few samples at a time, as their views may be large."""
    parts: dict[str, list[Tensor]] = {name: [] for name in encoders}
    while some := list(islice(samples, 16)):
        numbers, fields = [number for number, _ in some], [each for _, each in some]
        views = augment.values(augment.views_of(fields, numbers, 0))
        for name, encoder in encoders.items():
            flat = {each: view.flatten(0, 1).to(encoder.mean.device) for each, view in views.items()}
            parts[name].append(encoder(flat).float().cpu().unflatten(0, (augment.views, -1)))
    return {name: torch.cat(some, dim=1) for name, some in parts.items()}


def _geometry(features: Tensor, agreement: float | None) -> Geometry:
    # Features behind a ReLU share a large constant part, for which a random encoder finds everything alike.
    views = F.normalize(features - features.mean((0, 1)), dim=-1)
    same, different = positive_similarity(views), different_similarity(views)
    return Geometry(
        same,
        different,
        separation(same, different),
        alignment(views),
        uniformity(views[0]),
        effective_rank(views[0]),
        agreement,
    )


def nearest_others(features: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cosines and rows (N, k) of every row's nearest others."""
    bank = F.normalize(features, dim=1)
    return nearest(bank, bank, k, exclude=torch.arange(len(bank)))


def _agreement(labels: Tensor, near: Tensor) -> float:
    return float((labels[near] == labels[:, None]).double().mean())


def one_of_each_class(labels: Tensor, count: int) -> list[int]:
    """Rows to show: the first of each class, and then the first of the rest."""
    firsts: dict[int, int] = {}
    for row, label in enumerate(labels.tolist()):
        firsts.setdefault(label, row)
    return list(dict.fromkeys([*firsts.values(), *range(len(labels))]))[:count]


def neighbourhood(source: Source, numbers: list[int], row: int, cosines: Tensor, rows: Tensor) -> Neighbourhood:
    query, *others = (_sample(source, numbers[r], source.read(numbers[r])) for r in [row, *rows[row].tolist()])
    return Neighbourhood(query, tuple(others), tuple(cosines[row].tolist()))


def thumbnail(image: Tensor) -> Tensor:
    height, width = image.shape[-2:]
    shrink = _THUMBNAIL / max(height, width)
    if shrink >= 1:
        return image
    size = (max(1, round(height * shrink)), max(1, round(width * shrink)))
    return F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0].round().clamp(0, 255).byte()
