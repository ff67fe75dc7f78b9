"""Contrastive objectives as functions of two similarity matrices.

    positives  (N, M)   s[i, m] = q_i · k_{i,m}    each query with its own positives
    negatives  (N, K)   s[i, j] = q_i · n_j        each query with its negatives; an excluded pair is -inf

An objective never knows where its negatives come from. Everything is computed in at least float32.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["info_nce", "jcl", "log_sum_exp", "nt_xent", "similarity"]

Reduction = Literal["mean", "none"]


def similarity(query: Tensor, others: Tensor) -> Tensor:
    """Dot products of `query` (N, D) with its own `others` (N, M, D) -> (N, M), or shared ones (K, D) -> (N, K)."""
    with torch.autocast(query.device.type, enabled=False):  # bf16 similarities would drown JCL's variance in rounding
        query, others = _at_least_float32(query), _at_least_float32(others)
        if others.ndim == 3:
            return torch.matmul(others, query.unsqueeze(2)).squeeze(2)
        return query @ others.T


def info_nce(positives: Tensor, negatives: Tensor, *, temperature: float, reduction: Reduction = "mean") -> Tensor:
    r"""InfoNCE, and its vanilla extension to M keys: Eq. 1-3 of JCL, the mean over m of

    $$-\log\frac{\exp(s_{i,m}/τ)}{\exp(s_{i,m}/τ)+\sum_j\exp(s_{ij}/τ)}$$
    """
    positives, negatives = _at_least_float32(positives) / temperature, _at_least_float32(negatives)
    rest = log_sum_exp(negatives, scale=1 / temperature).unsqueeze(1)
    return _reduce((torch.logaddexp(positives, rest) - positives).mean(1), reduction)


def jcl(
    positives: Tensor, negatives: Tensor, *, temperature: float, lam: float, reduction: Reduction = "mean"
) -> Tensor:
    r"""Joint contrastive learning, Eq. 8-9: a bound on InfoNCE over infinitely many keys $k \sim N(μ_i, λΣ_i)$

    $$\log\Big[\exp\Big(\frac{q_i^Tμ_i}{τ}+\frac{λ}{2τ^2}q_i^TΣ_iq_i\Big)+\sum_j\exp(s_{ij}/τ)\Big]-\frac{q_i^Tμ_i}{τ}$$

    Mean and covariance are those of the M′ keys of a sample, so $q^Tμ$ and $q^TΣq$ are the mean and the population
    variance of its M′ similarities: no D×D matrix is ever needed.
    """
    positives, negatives = _at_least_float32(positives), _at_least_float32(negatives)
    mean = positives.mean(1) / temperature
    variance = positives.var(1, correction=0) / temperature**2
    rest = log_sum_exp(negatives, scale=1 / temperature)
    return _reduce(torch.logaddexp(mean + 0.5 * lam * variance, rest) - mean, reduction)


def nt_xent(
    views: Tensor,
    *,
    temperature: float,
    pool: Tensor | None = None,
    offset: int = 0,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""SimCLR's loss for unit embeddings `views` (V, N, D): the mean over ordered pairs of views a ≠ b of

    $$-\log\frac{\exp(u_{i,a}\cdot u_{i,b}/τ)}{\sum_{(j,c)\neq(i,a)}\exp(u_{i,a}\cdot u_{j,c}/τ)}$$

    The denominator holds every embedding but the anchor itself, other positives included. `pool` (V, P, D) are the
    embeddings of all ranks, among which the N samples here start at `offset`. `reduction="none"` gives (V, N).
    """
    pool = views if pool is None else pool
    count, n, _ = views.shape
    if count < 2:
        raise ValueError(f"nt_xent compares at least two views, got {count}")
    own = _at_least_float32(pool[:, offset : offset + n])
    with torch.autocast(views.device.type, enabled=False):
        pairs = torch.einsum("and,bnd->abn", _at_least_float32(views), own) / temperature
    positives = pairs.masked_fill(torch.eye(count, device=views.device, dtype=torch.bool)[..., None], 0.0)
    scores = similarity(views.flatten(0, 1), pool.flatten(0, 1))
    # The anchor's own column; writing in place is safe, as the product's gradient does not read its result.
    scores.view(count, n, count, -1).diagonal(offset, 1, 3).diagonal(0, 0, 1).fill_(-torch.inf)
    rest = log_sum_exp(scores, scale=1 / temperature).view(count, n)
    return _reduce(rest - positives.sum(1) / (count - 1), reduction)


def log_sum_exp(rows: Tensor, *, scale: float) -> Tensor:
    """log Σ_j exp(scale · rows[i, j]) over `rows` (N, K) -> (N,); -inf for a row without a finite entry.

    The one place where an objective touches all N×K pairs: it keeps no matrix but its argument and works in blocks
    that stay in the cache, which halves time and memory of the plain form.
    """
    return _LogSumExp.apply(rows, scale)  # type: ignore[no-any-return]


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, scale: float) -> Tensor:
        result = rows.new_full((len(rows),), -torch.inf)
        if rows.shape[1]:
            for block, target in _blocks(rows, rows, result):
                target.copy_(torch.logsumexp(block * scale, 1))
        ctx.save_for_backward(rows, result)
        ctx.scale = scale
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows, result = ctx.saved_tensors
        level = result.masked_fill(result == -torch.inf, 0.0).unsqueeze(1)  # -inf - -inf would be NaN
        weight = (gradient * ctx.scale).unsqueeze(1)
        softmax = torch.empty_like(rows)
        for block, target, shift, factor in _blocks(rows, rows, softmax, level, weight):
            torch.mul(block, ctx.scale, out=target).sub_(shift).exp_().mul_(factor)
        return softmax, None


def _blocks(shape_of: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of every tensor, some 2^18 elements of the first at a time on a CPU, all at once elsewhere."""
    n, k = shape_of.shape
    rows = max(1, 2**18 // max(1, k)) if shape_of.device.type == "cpu" else max(1, n)
    return zip(*(tensor.split(rows) for tensor in tensors), strict=True)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _reduce(loss: Tensor, reduction: Reduction) -> Tensor:
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction is 'mean' or 'none', not {reduction!r}")
    return loss.mean() if reduction == "mean" else loss
