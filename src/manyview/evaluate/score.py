"""Accuracy with its uncertainty: class scores and labels in, top-1 and top-5 with a bootstrap interval out."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview import counter
from manyview.evaluate.features import Features

__all__ = ["Score", "accuracy", "bootstrap", "class_count", "ranks", "score_features", "share_right"]

BOOTSTRAP_TAG = 0xB007
Interval = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """Accuracies are shares in 0…1 with 95 % intervals; top-5 is None where there are no more than five classes."""

    top1: float
    top1_interval: Interval
    top5: float | None
    top5_interval: Interval | None
    train_samples: int
    test_samples: int
    classes: int
    unreadable: int
    """Samples of either set that were left out because their image cannot be read."""
    preprocess: str
    settings: Mapping[str, int | float]
    """What the protocol used in the end, such as the clamped k or the chosen regularisation."""
    train_top1: float | None = None
    """Of a fitted classifier on what it was fitted on: far above `top1` it has learnt samples by heart."""


def accuracy(
    scores: Tensor,
    labels: Tensor,
    *,
    train_samples: int,
    unreadable: int,
    preprocess: str,
    settings: Mapping[str, int | float],
    train_top1: float | None = None,
) -> Score:
    """Class scores (N, C) and labels (N,) of the test set -> Score."""
    classes = scores.shape[1]
    place = ranks(scores, labels).cpu()
    hits = torch.stack([place < 1, place < 5], 1).double()  # (N, 2)
    (top1, top5), (interval1, interval5) = hits.mean(0).tolist(), bootstrap(hits)
    many = classes > 5
    return Score(
        top1=top1,
        top1_interval=interval1,
        top5=top5 if many else None,
        top5_interval=interval5 if many else None,
        train_samples=train_samples,
        test_samples=len(labels),
        classes=classes,
        unreadable=unreadable,
        preprocess=preprocess,
        settings=settings,
        train_top1=train_top1,
    )


def score_features(
    scores: Tensor,
    train: Features,
    test: Features,
    settings: Mapping[str, int | float],
    *,
    train_top1: float | None = None,
) -> Score:
    """`accuracy` of class scores (N, C) that a classifier made from `train` gives the samples of `test`."""
    return accuracy(
        scores,
        test.labels,
        train_samples=len(train),
        unreadable=len(train.unreadable) + len(test.unreadable),
        preprocess=test.preprocess,
        settings=settings,
        train_top1=train_top1,
    )


def share_right(scores: Tensor, labels: Tensor) -> float:
    """Top-1 alone: class scores (N, C) and labels (N,) -> share in 0…1."""
    return (ranks(scores, labels) == 0).double().mean().item()


def ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """Place of the true class, (N, C), (N,) -> (N,): 0 is the best. Of equal scores the lower class number comes first.

    A class that nothing speaks for (score -inf) takes the last place: among a thousand classes without a vote the
    accident of its number must not put it into the top 5.
    """
    if scores.isnan().any():  # NaN loses every comparison, which would read as first place
        raise ValueError("class scores are not numbers")
    own = scores.gather(1, labels[:, None])
    earlier = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    place = ((scores > own) | ((scores == own) & earlier)).sum(1)
    return place.masked_fill(own[:, 0] == -torch.inf, scores.shape[1])


def bootstrap(values: Tensor, *, seed: int = 0, resamples: int = 1000, level: float = 0.95) -> list[Interval]:
    """Percentile interval of the mean of each column of `values` (N, P); the same input gives the same interval."""
    count = len(values)
    positions = torch.arange(count)
    means = []
    for block in torch.split(torch.arange(resamples), max(1, 2**20 // count)):  # bounds memory
        drawn = counter.bits(seed, BOOTSTRAP_TAG, block[:, None], positions) % count
        means.append(values[drawn].mean(1))
    tail = (1 - level) / 2
    low, high = torch.quantile(torch.cat(means), values.new_tensor([tail, 1 - tail]), dim=0).tolist()
    return list(zip(low, high, strict=True))


def class_count(*labels: Tensor) -> int:
    """Classes that any of the sets knows, also when some are missing from one of them."""
    return 1 + max(int(each.max()) for each in labels)
