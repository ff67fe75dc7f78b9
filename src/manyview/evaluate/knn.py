"""Weighted k-nearest-neighbour classification: no training, no choice to make, hence the first look at an encoder."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.bounds import AtLeastOne, Positive
from manyview.data.loader import Workers
from manyview.data.source import Source, track
from manyview.encoders import FrozenEncoder
from manyview.evaluate.features import Features, extract
from manyview.evaluate.protocol import FeatureProtocol
from manyview.evaluate.result import Result
from manyview.evaluate.score import class_count, score_features, share_right

GROUPS = 16


@dataclass(frozen=True)
class Knn(FeatureProtocol):
    """k nearest neighbours by cosine similarity s, weighted by exp(s / temperature)."""

    name = "knn"
    title = "kNN classifier"
    k: Annotated[int, AtLeastOne] = 200
    """Number of neighbours; at most the number of training samples."""
    temperature: Annotated[float, Positive] = 0.07
    """The smaller, the more the nearest neighbours count."""

    def score(self, train: Features, test: Features, *, seed: int = 0, progress: bool = False) -> Result:
        scores = class_scores(train, test, self, progress=progress)
        return score_features(scores, train, test, {"k": min(self.k, len(train))})


def class_scores(train: Features, test: Features, protocol: Knn, *, chunk: int = 512, progress: bool = False) -> Tensor:
    """Logarithm of every class's votes for every test sample, (N, C); -inf for a class without a neighbour."""
    classes = class_count(train.labels, test.labels)
    bank = F.normalize(train.embeddings, dim=1)
    queries = torch.split(F.normalize(test.embeddings, dim=1), chunk)
    scores = []
    for query in track(queries, "nearest neighbours", show=progress):
        similarity, index = nearest(query, bank, protocol.k)
        scores.append(_log_votes(similarity / protocol.temperature, train.labels[index], classes))
    return torch.cat(scores)


def knn_accuracy(
    encoder: FrozenEncoder, source: Source, test_source: Source, *, protocol: Knn = Knn(), workers: Workers = 0
) -> float:
    """Top-1 of kNN alone, without its interval."""
    train, test = (extract(encoder, each, workers=workers) for each in (source, test_source))
    return share_right(class_scores(train, test, protocol), test.labels)


def _log_votes(logits: Tensor, labels: Tensor, classes: int) -> Tensor:
    """log Σ exp(logit) over the neighbours of each class: logits and labels (N, k) -> (N, C).

    Each class is shifted by its own maximum, so that no temperature lets a vote over- or underflow.
    """
    shape = (len(logits), classes)
    top = logits.new_full(shape, -torch.inf).scatter_reduce(1, labels, logits, "amax")
    votes = logits.new_zeros(shape).scatter_add(1, labels, torch.exp(logits - top.gather(1, labels)))
    return top + votes.log()


def nearest(query: Tensor, bank: Tensor, k: int, *, block: int = 65_536) -> tuple[Tensor, Tensor]:
    """Similarities and row numbers (N, k), unsorted, of the k rows of `bank` (n, D) nearest to each `query` (N, D).

    With fewer than k rows all of them. Only `block` rows are scored at once, which bounds the memory for large sets.
    """
    best: tuple[Tensor, Tensor] | None = None
    for start in range(0, len(bank), block):
        similarity = query @ bank[start : start + block].T
        values, index = _largest(similarity, min(k, similarity.shape[1]))
        index += start
        if best is not None:
            values, index = torch.cat([best[0], values], 1), torch.cat([best[1], index], 1)
            values, place = values.topk(min(k, values.shape[1]), dim=1, sorted=False)
            index = index.gather(1, place)
        best = values, index
    if best is None:
        raise ValueError("the bank is empty")
    return best


def _largest(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and their columns, exactly, several times faster than `topk` on long rows.

    The columns are dealt into groups of GROUPS. At least k entries reach t, the k-th largest of the groups' maxima, and
    every entry above t sits in a group whose maximum is above t: so only the k best groups need a closer look.
    """
    n = rows.shape[1]
    width = n // GROUPS
    if width < 2 * k:
        return rows.topk(k, dim=1, sorted=False)
    # Column c belongs to group c % width, which makes the maximum a vectorised pass over whole stretches of memory.
    maxima = rows[:, : width * GROUPS].view(-1, GROUPS, width).amax(1)
    groups = maxima.topk(k, dim=1, sorted=False).indices
    offsets = width * torch.arange(GROUPS, device=rows.device)
    rest = torch.arange(width * GROUPS, n, device=rows.device).expand(len(rows), -1)
    columns = torch.cat([(groups[:, None] + offsets[:, None]).flatten(1), rest], 1)
    values, place = rows.gather(1, columns).topk(k, dim=1, sorted=False)
    return values, columns.gather(1, place)
