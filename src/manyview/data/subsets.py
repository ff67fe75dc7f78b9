"""Parts of a set: fewer of its samples, or uneven classes, of which some keep only a part (CACR, §5.1)."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from manyview.counter import permutation
from manyview.data.source import Source, Subset
from manyview.errors import UserError

Rule = Literal["linear", "exponential"]

IMBALANCE_TAG, FEWER_TAG = 0x1BA1, 0xFE3E  # keep the choice of samples apart from everybody else's draws
_MOST_COUNTS = 12


def kept_share(rule: Rule, place: int, classes: int, ratio: float) -> float:
    """What class `place` of 1…C keeps: l/C, or ratio^(-(C-l)/(C-1)), which rises from 1/ratio to 1.

    The paper prints ⌊l/C⌋ and exp(⌊l/C⌋), which would keep nothing, or everything, of all classes but the last.
    """
    if rule == "linear":
        return place / classes
    return float(ratio ** -((classes - place) / max(1, classes - 1)))


def fewer(source: Source, count: int, *, seed: int) -> Subset:
    """So many samples, or all where there are no more, in their order; which ones is a hash of the seed."""
    return _part(source, permutation(len(source), seed, FEWER_TAG)[:count])


def imbalanced(source: Source, rule: Rule, *, ratio: float, seed: int) -> Subset:
    """The samples that `rule` leaves of each class, at least one, in their order; which ones is a hash of the seed."""
    if source.labels is None:
        raise UserError(
            f"--imbalance {rule} needs labels, which '{source.name}' has not: use --imbalance none, or images in one "
            "directory per class and no --unlabelled"
        )
    if not ratio >= 1:
        raise UserError(f"--imbalance-ratio {ratio} must be at least 1: 100 keeps a hundredth of the first class")
    counts = source.class_counts
    shuffled = permutation(len(source), seed, IMBALANCE_TAG)
    by_class = shuffled[torch.argsort(source.labels[shuffled], stable=True)].split(counts)
    kept = [
        samples[: max(1, round(len(samples) * kept_share(rule, place, len(counts), ratio)))]
        for place, samples in enumerate(by_class, 1)
    ]
    return _part(source, torch.cat(kept))


def _part(source: Source, kept: Tensor) -> Subset:
    subset = Subset(source, kept.sort().values)
    if source.unreadable:  # broken images that were not kept must not count against the few that were
        ids = {subset.id(i) for i in range(len(subset))}
        subset.unreadable = tuple(image for image in source.unreadable if image[0] in ids)
    return subset


def counts_in_words(counts: Sequence[int]) -> str:
    """Every class where they are few, else the smallest and the largest."""
    if len(counts) <= _MOST_COUNTS:
        return ", ".join(f"{count:,}" for count in counts)
    return f"{min(counts):,} to {max(counts):,} in {len(counts):,} classes"
