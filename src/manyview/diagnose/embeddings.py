"""What embeddings look like, as numbers. N samples, V views of each, D dimensions; every row has unit length."""

import math

import torch
from torch import Tensor


def positive_similarity(views: Tensor) -> Tensor:
    """(V, N, D) -> (N,): the mean cosine over the V(V-1)/2 pairs of views of each sample, V ≥ 2."""
    count = views.shape[0]
    # |Σ z|² = Σ |z|² + 2 Σ_{a<b} z_a·z_b, so that no (V, V, N) array is needed.
    crossed = views.sum(0).square().sum(-1) - views.square().sum((0, -1))
    return crossed / (count * (count - 1))


def different_similarity(views: Tensor) -> Tensor:
    """(V, N, D) -> (N(N-1)/2,): the mean cosine over the V² pairs of views of each two different samples."""
    centres = views.mean(0)
    row, column = torch.triu_indices(len(centres), len(centres), offset=1, device=views.device)
    return (centres @ centres.T)[row, column]


def separation(positive: Tensor, different: Tensor) -> float:
    """The probability that a positive similarity exceeds a different one (the area under the ROC curve)."""
    different = different.sort().values
    below = torch.searchsorted(different, positive)
    not_above = torch.searchsorted(different, positive, right=True)
    return float((below + not_above).double().mean()) / (2 * len(different))


def alignment(views: Tensor, alpha: float = 2.0) -> float:
    r"""(V, N, D): the mean of $\|z_a - z_b\|^\alpha$ over samples and pairs of their views; 0 is perfect.

    Wang and Isola, Understanding Contrastive Representation Learning (2020).
    """
    first, second = torch.triu_indices(len(views), len(views), offset=1, device=views.device)
    return float((views[first] - views[second]).norm(dim=-1).pow(alpha).mean())


def uniformity(embeddings: Tensor, t: float = 2.0) -> float:
    r"""(N, D): $\log \mathrm{mean}_{i<j}\, e^{-t \|z_i - z_j\|^2}$; the lower, the more evenly spread over the sphere.

    Wang and Isola, Understanding Contrastive Representation Learning (2020).
    """
    squared = torch.pdist(embeddings).square()
    return float(torch.logsumexp(-t * squared, dim=0)) - math.log(len(squared))


def effective_rank(embeddings: Tensor) -> float:
    """(N, D): exp of the entropy of the normalised singular values, after the mean is removed (Roy and Vetterli, 2007).

    The number of directions in which the samples differ: 1 when they lie on a line, D when they fill the space evenly.
    """
    values = torch.linalg.svdvals((embeddings - embeddings.mean(0)).double())
    share = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    return float(torch.special.entr(share).sum().exp())


def variance(embeddings: Tensor) -> float:
    """(N, D): the mean squared distance from their mean; 0 when all are the same vector, 1 when they cancel out."""
    return float((embeddings - embeddings.mean(0)).square().sum(1).mean())


def nearest(query: Tensor, bank: Tensor, k: int, *, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(Q, D), (N, D) -> cosines (Q, k) and rows of the bank (Q, k), nearest first; of equals the lower row.

    `exclude` (Q,) names the row of the bank that is the query itself. `k` is clamped to what is left.
    """
    cosine = query @ bank.T
    if exclude is not None:
        cosine = cosine.scatter(1, exclude[:, None], -torch.inf)
    k = min(k, len(bank) - (exclude is not None))
    # A stable sort and not topk, whose choice among equals depends on the device.
    order = cosine.argsort(dim=1, descending=True, stable=True)[:, :k]
    return cosine.gather(1, order), order
