"""Objectives of unit embeddings `views` (V, N, D) in which every view is an anchor of every other.

`pool` (V, P, D) are the embeddings of all ranks, among which the N samples here start at `offset`; without it the
samples here are all there are. Two rows with the same `owner` (P,), a sample or a group of samples, are never each
other's negatives; without it every row is a sample of its own.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from manyview.objectives.rows import Reduction, log_sum_exp, reduced, similarity
from manyview.precision import at_least_float32


def nt_xent(
    views: Tensor,
    *,
    temperature: float,
    pool: Tensor | None = None,
    offset: int = 0,
    owner: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""SimCLR's loss: the mean over ordered pairs of views a ≠ b of

    $$-\log\frac{\exp(u_{i,a}\cdot u_{i,b}/τ)}{\sum_{(j,c)\neq(i,a)}\exp(u_{i,a}\cdot u_{j,c}/τ)}$$

    The denominator holds every embedding but the anchor itself, other positives included. `reduction="none"` gives
    (V, N).
    """
    pool = _checked(views, pool)
    scores = _scores(views, pool, offset, owner)
    _own(scores, offset).diagonal(0, 0, 1).fill_(-torch.inf)
    rest = log_sum_exp(scores.flatten(0, 1).flatten(1), scale=1 / temperature).view(views.shape[:2])
    return reduced(rest - _mean_over_others(_positives(views, pool, offset) / temperature), reduction)


def cmc_full_graph(
    views: Tensor,
    *,
    temperature: float,
    pool: Tensor | None = None,
    offset: int = 0,
    owner: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""CMC's full graph, Eq. 8 with Eq. 2-4: the mean over ordered pairs of views a ≠ b (the paper sums them) of

    $$-\log\frac{\exp(u_{i,a}\cdot u_{i,b}/τ)}{\sum_j\exp(u_{i,a}\cdot u_{j,b}/τ)}$$

    Negatives of an anchor are the other samples in the other view only. `reduction="none"` gives (V, N).
    """
    pool = _checked(views, pool)
    count, n, _ = views.shape
    rest = log_sum_exp(_scores(views, pool, offset, owner).flatten(0, 2), scale=1 / temperature).view(count, n, count)
    return reduced(_mean_over_others(rest.mT - _positives(views, pool, offset) / temperature), reduction)


def pvc(
    views: Tensor,
    *,
    temperature: float,
    mean: Literal["geometric", "arithmetic"] = "geometric",
    pool: Tensor | None = None,
    offset: int = 0,
    owner: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Poly-view contrast (Shidani et al. 2024): −log of the geometric or arithmetic mean over b ≠ a of

    $$\ell_{i,a,b}=\frac{\exp(u_{i,a}\cdot u_{i,b}/τ)}
      {\exp(u_{i,a}\cdot u_{i,b}/τ)+\sum_{j\neq i}\sum_c\exp(u_{i,a}\cdot u_{j,c}/τ)}$$

    The denominator holds all views c of the other samples, the anchor's own view a among them, but no other positive.
    `reduction="none"` gives (V, N).
    """
    if mean not in ("geometric", "arithmetic"):
        raise ValueError(f"mean is 'geometric' or 'arithmetic', not {mean!r}")
    pool = _checked(views, pool)
    scores = _scores(views, pool, offset, owner)
    _own(scores, offset).fill_(-torch.inf)
    rest = log_sum_exp(scores.flatten(0, 1).flatten(1), scale=1 / temperature).view(views.shape[:2])
    positives = _positives(views, pool, offset) / temperature
    log_shares = positives - torch.logaddexp(positives, rest.unsqueeze(1))
    if mean == "geometric":
        return reduced(-_mean_over_others(log_shares), reduction)
    return reduced(math.log(len(views) - 1) - _without_itself(log_shares, -torch.inf).logsumexp(1), reduction)


def mv_infonce(
    views: Tensor,
    *,
    temperature: float,
    same_view: bool = True,
    pool: Tensor | None = None,
    offset: int = 0,
    owner: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""MV-InfoNCE (Koromilas et al. 2025), one term for each sample:

    $$-\log\frac{\sum_{a\neq b}\exp(u_{i,a}\cdot u_{i,b}/τ)}{\sum_a\sum_{(j,b)\neq(i,a)}\exp(u_{i,a}\cdot u_{j,b}/τ)}$$

    The denominator is that of the released code, which leaves out an anchor's pair with itself only. The printed
    formula also leaves out the other samples in the anchor's own view: `same_view=False`. `reduction="none"` gives
    (N,).
    """
    pool = _checked(views, pool)
    scores = _scores(views, pool, offset, owner)
    excluded = _own(scores, offset).diagonal(0, 0, 1) if same_view else scores.diagonal(0, 0, 2)
    excluded.fill_(-torch.inf)
    rest = log_sum_exp(scores.flatten(0, 1).flatten(1), scale=1 / temperature).view(views.shape[:2])
    return reduced(rest.logsumexp(0) - _all_pairs(_positives(views, pool, offset) / temperature), reduction)


def mv_dhel(
    views: Tensor,
    *,
    temperature: float,
    pool: Tensor | None = None,
    offset: int = 0,
    owner: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""MV-DHEL (Koromilas et al. 2025), which aligns all pairs of views at once and repels within each view:

    $$-\log\sum_{a\neq b}\exp(u_{i,a}\cdot u_{i,b}/τ)+\sum_a\log\sum_{j\neq i}\exp(u_{i,a}\cdot u_{j,a}/τ)$$

    The released code counts a pair of views once, which is log 2 more. `reduction="none"` gives (N,).
    """
    pool = _checked(views, pool)
    with torch.autocast(views.device.type, enabled=False):
        scores = torch.matmul(at_least_float32(views), at_least_float32(pool).mT)  # (V, N, P)
    scores.diagonal(offset, 1, 2).fill_(-torch.inf)
    if owner is not None:
        scores.masked_fill_(_alike(owner, views.shape[1], offset), -torch.inf)
    rest = log_sum_exp(scores.flatten(0, 1), scale=1 / temperature).view(views.shape[:2])
    repelled = rest.masked_fill(rest == -torch.inf, 0.0).sum(0)
    return reduced(repelled - _all_pairs(_positives(views, pool, offset) / temperature), reduction)


def _checked(views: Tensor, pool: Tensor | None) -> Tensor:
    if len(views) < 2:
        raise ValueError(f"an objective of all pairs compares at least two views, got {len(views)}")
    return views if pool is None else pool


def _positives(views: Tensor, pool: Tensor, offset: int) -> Tensor:
    """u_{i,a} · u_{i,b} at [a, b, i]: (V, V, N)."""
    own = at_least_float32(pool[:, offset : offset + views.shape[1]])
    with torch.autocast(views.device.type, enabled=False):
        return torch.einsum("and,bnd->abn", at_least_float32(views), own)


def _scores(views: Tensor, pool: Tensor, offset: int, owner: Tensor | None) -> Tensor:
    """u_{i,a} · u_{j,b} at [a, i, b, j]: (V, N, V, P), excluded where i and j ≠ i have the same owner. Exclusions are
    written into it, which is safe: the product's gradient does not read its result."""
    count, n, _ = views.shape
    scores = similarity(views.flatten(0, 1), pool.flatten(0, 1)).view(count, n, count, -1)
    if owner is not None:
        scores.masked_fill_(_alike(owner, n, offset).unsqueeze(1), -torch.inf)
    return scores


def _alike(owner: Tensor, n: int, offset: int) -> Tensor:
    """Where the i-th of `n` rows from `offset` on and another row j of the pool have the same owner: (N, P)."""
    alike = owner[offset : offset + n, None] == owner
    alike.diagonal(offset).fill_(False)
    return alike


def _own(scores: Tensor, offset: int) -> Tensor:
    """Where `scores` hold a sample's own views: (V, V, N), to be written to."""
    return scores.diagonal(offset, 1, 3)


def _without_itself(pairs: Tensor, value: float) -> Tensor:
    """`pairs` (V, V, N) with `value` where a view meets itself."""
    return pairs.masked_fill(torch.eye(len(pairs), device=pairs.device, dtype=torch.bool).unsqueeze(2), value)


def _mean_over_others(pairs: Tensor) -> Tensor:
    return _without_itself(pairs, 0.0).sum(1) / (len(pairs) - 1)


def _all_pairs(pairs: Tensor) -> Tensor:
    """The log-sum-exp over all a ≠ b: (N,)."""
    return _without_itself(pairs, -torch.inf).flatten(0, 1).logsumexp(0)
