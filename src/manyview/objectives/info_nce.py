"""InfoNCE: one positive key, several, and infinitely many."""

import torch
from torch import Tensor

from manyview.objectives.rows import Reduction, log_sum_exp, reduced
from manyview.precision import at_least_float32


def info_nce(positives: Tensor, negatives: Tensor, *, temperature: float, reduction: Reduction = "mean") -> Tensor:
    r"""InfoNCE, and its vanilla extension to M keys: Eq. 1-3 of JCL, the mean over m of

    $$-\log\frac{\exp(s_{i,m}/τ)}{\exp(s_{i,m}/τ)+\sum_j\exp(s_{ij}/τ)}$$
    """
    positives, negatives = at_least_float32(positives) / temperature, at_least_float32(negatives)
    rest = log_sum_exp(negatives, scale=1 / temperature).unsqueeze(1)
    return reduced((torch.logaddexp(positives, rest) - positives).mean(1), reduction)


def jcl(
    positives: Tensor, negatives: Tensor, *, temperature: float, lam: float, reduction: Reduction = "mean"
) -> Tensor:
    r"""Joint contrastive learning, Eq. 8-9: a bound on InfoNCE over infinitely many keys $k \sim N(μ_i, λΣ_i)$

    $$\log\Big[\exp\Big(\frac{q_i^Tμ_i}{τ}+\frac{λ}{2τ^2}q_i^TΣ_iq_i\Big)+\sum_j\exp(s_{ij}/τ)\Big]-\frac{q_i^Tμ_i}{τ}$$

    Mean and covariance are those of the M′ keys of a sample, so $q^Tμ$ and $q^TΣq$ are the mean and the population
    variance of its M′ similarities: no D×D matrix is ever needed.
    """
    positives, negatives = at_least_float32(positives), at_least_float32(negatives)
    mean = positives.mean(1) / temperature
    variance = positives.var(1, correction=0) / temperature**2
    rest = log_sum_exp(negatives, scale=1 / temperature)
    return reduced(torch.logaddexp(mean + 0.5 * lam * variance, rest) - mean, reduction)
