"""CMC between whole images and their patches."""

import torch
from torch import Tensor

from manyview.objectives.info_nce import info_nce
from manyview.objectives.rows import Reduction, similarity


def patch_contrast(
    global_features: Tensor,
    local_features: Tensor,
    *,
    temperature: float,
    pool: Tensor | None = None,
    offset: int = 0,
    owner: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""CMC's contrast of sub-patches (B.2, after Deep InfoMax): the mean over the h·w positions p of

    $$-\log\frac{\exp(g_i\cdot l_{i,p}/τ)}{\exp(g_i\cdot l_{i,p}/τ)+\sum_{j\neq i}\sum_{p'}\exp(g_i\cdot l_{j,p'}/τ)}$$

    where $g$, the `global_features` (N, D), come from the last layer of one view and $l$, the `local_features`
    (N, D, h, w), from an early layer of the other; unit vectors along D. Negatives of a position are all positions of
    the other samples. `pool` (P, D, h, w) are the local features of all ranks, among which the N samples here start at
    `offset`; samples with the same `owner` (P,) are no negatives of each other.
    """
    pool = local_features if pool is None else pool
    positives, negatives = patch_scores(global_features, pool, offset=offset, owner=owner)
    return info_nce(positives, negatives, temperature=temperature, reduction=reduction)


def patch_scores(
    global_features: Tensor, pool: Tensor, *, offset: int = 0, owner: Tensor | None = None, there: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Positives (N, h·w) and negatives (N, P·h·w) of the global features (N, D) among local ones (P, D, h, w). Samples
    that are not `there` (P,), since they lack the view, are no negatives, nor are those of the same `owner` (P,)."""
    scores = similarity(global_features, pool.permute(0, 2, 3, 1).flatten(0, 2))
    by_sample = scores.view(len(scores), len(pool), -1)
    own = by_sample.diagonal(offset, 0, 1)  # (h·w, N)
    positives = own.T.clone()
    own.fill_(-torch.inf)  # in place is safe: the product's gradient does not read its result
    if owner is not None:
        alike = owner[offset : offset + len(scores), None] == owner
        by_sample.masked_fill_(alike.unsqueeze(2), -torch.inf)
    if there is not None:
        by_sample.masked_fill_(~there[:, None], -torch.inf)
    return positives, scores
