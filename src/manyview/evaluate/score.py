"""Top-1 and top-5 accuracy with bootstrap intervals, from class scores and labels."""

from collections.abc import Mapping

import torch
from torch import Tensor

from manyview import counter
from manyview.evaluate.features import Features
from manyview.evaluate.result import Interval, Metric, Result

BOOTSTRAP_TAG = 0xB007


def accuracy(
    scores: Tensor,
    labels: Tensor,
    *,
    train_samples: int,
    unreadable: int = 0,
    preprocess: str = "",
    facts: Mapping[str, float] | None = None,
    fitted: float | None = None,
) -> Result:
    """Class scores (N, C) and labels (N,) of the test set -> top-1 and, where there are more than five classes, top-5.

    `fitted` is the top-1 of a classifier on what it was fitted on: far above that on the test set, it overfits.
    """
    classes = scores.shape[1]
    place = ranks(scores, labels).cpu()
    hits = torch.stack([place < 1, place < 5], 1).double()  # (N, 2)
    metrics = [Metric(*each) for each in zip(hits.mean(0).tolist(), bootstrap(hits), strict=True)]
    known = {"train_samples": train_samples, "test_samples": len(labels), "classes": classes}
    return Result(
        dict(zip(("top-1", "top-5") if classes > 5 else ("top-1",), metrics, strict=False)),
        "top-1",
        {**known, **({} if fitted is None else {"fitted": fitted}), **(facts or {})},
        preprocess,
        unreadable,
    )


def score_features(
    scores: Tensor, train: Features, test: Features, facts: Mapping[str, float], *, fitted: float | None = None
) -> Result:
    """`accuracy` of class scores (N, C) that a classifier made from `train` gives the samples of `test`."""
    return accuracy(
        scores,
        test.labels,
        train_samples=len(train),
        unreadable=len(train.unreadable) + len(test.unreadable),
        preprocess=test.preprocess,
        facts=facts,
        fitted=fitted,
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
