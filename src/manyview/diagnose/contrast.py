"""Contrast of the embeddings of a batch: entropy and effective numbers of CACR's weights, alignment, uniformity."""

from collections.abc import Callable

import torch
from torch import Tensor

from manyview.diagnose.embeddings import alignment, effective_rank, uniformity, variance
from manyview.methods.many_views import others
from manyview.objectives import conditional_entropy, log_sum_exp, max_conditional_entropy, similarity

CONTRAST = (
    "entropy",
    "max_entropy",
    "alignment",
    "uniformity",
    "nearest_weight",
    "effective_positives",
    "effective_negatives",
    "variance",
    "effective_rank",
)


def contrast(views: Tensor, *, t_pos: float, t_neg: float) -> dict[str, float]:
    r"""The numbers that `CONTRAST` names, of unit embeddings (V, N, D) with V, N ≥ 2.

    Each view of each sample is a query. Its positives are the sample's other views, its negatives the other samples in
    the same view (CACR, Eq. 5), weighted by $π^+ ∝ e^{t^+\|\cdot\|^2}$ and $π^- ∝ e^{-t^-\|\cdot\|^2}$ (Eq. 3, 4).
    Means over the queries:

    entropy, max_entropy    of the negative weights, $H(X^-|X)$ of Eq. 8, and log(N − 1), which it cannot exceed
    nearest_weight          of the nearest negative
    effective_positives     e to the entropy of the positive weights: V − 1 if they are all equal
    effective_negatives     the same of the negative weights: N − 1 if they are all equal
    alignment, uniformity,
    variance,
    effective_rank          as the functions do it, all but the alignment in each view by itself
    """
    positives = torch.cat(
        [similarity(view, others(views, number).transpose(0, 1)) for number, view in enumerate(views)]
    )  # (VN, V-1)
    negatives = torch.cat([similarity(view, view).fill_diagonal_(-torch.inf) for view in views])  # (VN, N)
    entropy = conditional_entropy(negatives, t_neg=t_neg)
    positive_entropy = conditional_entropy(positives, t_neg=-t_pos)  # far ones weigh as near ones do for the other sign
    log_nearest = 2 * t_neg * negatives.amax(1) - log_sum_exp(negatives, scale=2 * t_neg)
    return {
        "entropy": float(entropy.mean()),
        "max_entropy": float(max_conditional_entropy(negatives).mean()),
        "alignment": alignment(views),
        "uniformity": _in_each(uniformity, views),
        "nearest_weight": float(log_nearest.exp().mean()),
        "effective_positives": float(positive_entropy.exp().mean()),
        "effective_negatives": float(entropy.exp().mean()),
        "variance": _in_each(variance, views),
        "effective_rank": _in_each(effective_rank, views),
    }


def _in_each(number: Callable[[Tensor], float], views: Tensor) -> float:
    return sum(map(number, views)) / len(views)
