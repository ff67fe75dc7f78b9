"""CACR: positives and negatives, each contrasted within themselves; and the information in its negative weights.

For unit vectors ‖x−y‖² = 2 − 2s, so the weights $e^{±t‖x−y‖²}$ of a row are a softmax of ∓2t·s, and the mean of an
affine cost is the cost of the mean similarity.
"""

from typing import Literal

import torch
from torch import Tensor

from manyview.objectives.rows import Reduction, finite_counts, log_mean_exp, log_sum_exp, reduced, soft_mean
from manyview.precision import at_least_float32

Weights = Literal["far", "near", "uniform"]


def cacr(
    positives: Tensor,
    negatives: Tensor,
    *,
    t_pos: float,
    t_neg: float,
    cost: Literal["euclidean", "inner", "rbf"] = "euclidean",
    rbf_t: float = 2.0,
    positive_weights: Weights = "far",
    negative_weights: Weights = "near",
    detach_positive_weights: bool = False,
    margin: float | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Contrastive attraction and contrastive repulsion, Eq. 2-5:

    $$\sum_m π^+_{im}\,c(q_i,k_{im})-\sum_j π^-_{ij}\,c(q_i,n_j),\qquad
      π^+_{im}\propto e^{t^+\|q_i-k_{im}\|^2},\quad π^-_{ij}\propto e^{-t^-\|q_i-n_j\|^2}$$

    Far positives and near negatives weigh most; the other weights are those of Table 10, and uniform ones on both sides
    make it UAUR (Eq. 11). `cost="rbf"` changes the repulsion only, into a scalar over all queries (Eq. 14).
    `detach_positive_weights` is the `no_grad` of Algorithm 3. `margin` is the triplet form of App. B.5, each query's
    $[\,\cdot+m]_+$.
    """
    attracted = attraction(
        positives,
        t_pos=t_pos,
        cost="euclidean" if cost == "rbf" else cost,
        weights=positive_weights,
        detach_weights=detach_positive_weights,
        reduction="none",
    )
    if cost == "rbf":
        if reduction == "none" or margin is not None:
            raise ValueError("the rbf repulsion is one number for all queries: no reduction='none', no margin")
        repelled = repulsion(negatives, t_neg=t_neg, cost="rbf", rbf_t=rbf_t, weights=negative_weights)
        return reduced(attracted, reduction) + repelled
    loss = attracted + repulsion(negatives, t_neg=t_neg, cost=cost, weights=negative_weights, reduction="none")
    return reduced(loss if margin is None else (loss + margin).clamp_min(0.0), reduction)


def attraction(
    positives: Tensor,
    *,
    t_pos: float,
    cost: Literal["euclidean", "inner"] = "euclidean",
    weights: Weights = "far",
    detach_weights: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""The first term of Eq. 2, with Eq. 3's weights: $\sum_m π^+_{im}\,c(q_i,k_{im})$."""
    mean, _ = soft_mean(at_least_float32(positives), scale=_scale(weights, t_pos), detach_weights=detach_weights)
    return reduced(_affine_cost(mean, cost), reduction)


def repulsion(
    negatives: Tensor,
    *,
    t_neg: float,
    cost: Literal["euclidean", "inner", "rbf"] = "euclidean",
    rbf_t: float = 2.0,
    weights: Weights = "near",
    reduction: Reduction = "mean",
) -> Tensor:
    r"""The second term of Eq. 2, with Eq. 4's weights: $-\sum_j π^-_{ij}\,c(q_i,n_j)$, and 0 without negatives.

    With `cost="rbf"` the second line of Eq. 14 (a sign is misprinted in the first), over the N queries with negatives:

    $$\ln\Big[\frac{1}{N}\sum_i\sum_j π^-_{ij}\,e^{-t\|q_i-n_j\|^2}\Big]$$
    """
    negatives, scale = at_least_float32(negatives), _scale(weights, t_neg)
    if cost == "rbf":
        if reduction != "mean":
            raise ValueError(f"the rbf repulsion is one number for all queries: no reduction={reduction!r}")
        return _rbf_repulsion(negatives, scale, rbf_t)
    mean, log_sum = soft_mean(negatives, scale=scale)
    return reduced((-_affine_cost(mean, cost)).masked_fill(log_sum == -torch.inf, 0.0), reduction)


def conditional_entropy(negatives: Tensor, *, t_neg: float) -> Tensor:
    r"""Eq. 8 for each query: the entropy $-\sum_j π^-_{ij}\lnπ^-_{ij}$ of its negative weights, (N,)."""
    scale = _scale("near", t_neg)
    mean, log_sum = soft_mean(at_least_float32(negatives), scale=scale)
    return (log_sum - scale * mean).masked_fill(log_sum == -torch.inf, 0.0)


def max_conditional_entropy(negatives: Tensor) -> Tensor:
    """The maximum of `conditional_entropy`: the log of the number of negatives of each query, (N,)."""
    return finite_counts(negatives).to(at_least_float32(negatives).dtype).clamp_min(1.0).log()


def mutual_information(negatives: Tensor, *, t_neg: float, reduction: Reduction = "mean") -> Tensor:
    r"""Eq. 7, the mean over queries of $\sum_j π^-_{ij}\ln(π^-_{ij}/p_j)$, where $p_j = 1/K$ as in Eq. 5."""
    information = max_conditional_entropy(negatives) - conditional_entropy(negatives, t_neg=t_neg)
    return reduced(information, reduction)


def _rbf_repulsion(negatives: Tensor, scale: float, t: float) -> Tensor:
    total = log_sum_exp(negatives, scale=scale)
    lonely = total == -torch.inf
    weighted = log_sum_exp(negatives, scale=scale + 2 * t) - total - 2 * t
    return log_mean_exp(weighted.masked_fill(lonely, -torch.inf), (~lonely).sum())


def _affine_cost(similarity: Tensor, cost: Literal["euclidean", "inner"]) -> Tensor:
    """Eq. 12, or the negative inner product."""
    if cost not in ("euclidean", "inner"):
        raise ValueError(f"cost is 'euclidean', 'inner' or, for the repulsion, 'rbf', not {cost!r}")
    return 2 - 2 * similarity if cost == "euclidean" else -similarity


def _scale(weights: Weights, t: float) -> float:
    """The factor of s in the exponent of the weights: $e^{-t‖x−y‖²} ∝ e^{2ts}$ for near ones."""
    scales = {"near": 2 * t, "far": -2 * t, "uniform": 0.0}
    if weights not in scales:
        raise ValueError(f"weights are 'near', 'far' or 'uniform', not {weights!r}")
    return scales[weights]
