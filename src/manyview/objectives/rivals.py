"""CACR's baselines besides InfoNCE: alignment and uniformity, debiased and hard negatives."""

import math

import torch
from torch import Tensor

from manyview.objectives.info_nce import info_nce
from manyview.objectives.rows import Reduction, finite_counts, log_mean_exp, log_sum_exp, reduced
from manyview.precision import at_least_float32


def align_uniform(
    positives: Tensor,
    pairs: Tensor,
    *,
    t: float,
    align_weight: float,
    uniform_weight: float,
    contrastive_weight: float = 0.0,
    temperature: float = 0.19,
) -> Tensor:
    r"""AU-CL (Wang & Isola 2020), with unit vectors and thus ‖x−y‖² = 2 − 2s; one number for all pairs:

    $$w_a\,\mathrm{mean}_{i,m}\|q_i-k_{im}\|^2+w_u\,\log\,\mathrm{mean}_{i,j}\,e^{-t\|z_i-z_j\|^2}
      +w_c\,\mathrm{InfoNCE}(τ)$$

    `pairs` (N, K) are similarities of different samples, and the negatives of the optional InfoNCE. The released code
    takes the uniformity of each of two views and averages: so does the mean of two calls.
    """
    positives, pairs = at_least_float32(positives), at_least_float32(pairs)
    align = (2 - 2 * positives).mean()
    uniform = log_mean_exp(log_sum_exp(pairs, scale=2 * t) - 2 * t, finite_counts(pairs).sum())
    loss = align_weight * align + uniform_weight * uniform
    if contrastive_weight:
        loss = loss + contrastive_weight * info_nce(positives, pairs, temperature=temperature)
    return loss


def debiased(
    positives: Tensor, negatives: Tensor, *, temperature: float, tau_plus: float, reduction: Reduction = "mean"
) -> Tensor:
    """Debiased contrast (Chuang et al. 2020): `hard_negative` with equally important negatives."""
    return hard_negative(
        positives, negatives, temperature=temperature, beta=0.0, tau_plus=tau_plus, reduction=reduction
    )


def hard_negative(
    positives: Tensor,
    negatives: Tensor,
    *,
    temperature: float,
    beta: float,
    tau_plus: float,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""HN-CL (Robinson et al. 2021), for n negatives of which a share $τ^+$ has the class of the query; mean over m of

    $$-\log\frac{p}{p+G},\quad G=\max\Big(\frac{R-nτ^+p}{1-τ^+},\,n\,e^{-1/τ}\Big),\quad
      R=\frac{\sum_j w_j e_j}{\frac{1}{n}\sum_j w_j}$$

    where $p=e^{s_{im}/τ}$, $e_j=e^{s_{ij}/τ}$ and $w_j=e_j^β$. Without β and τ⁺ this is InfoNCE.
    """
    if not 0 <= tau_plus < 1:
        raise ValueError(f"tau_plus is a share in [0, 1), not {tau_plus}")
    positives, negatives = at_least_float32(positives) / temperature, at_least_float32(negatives)
    counts = finite_counts(negatives).to(negatives.dtype)
    lonely, log_n = counts == 0, counts.clamp_min(1.0).log()
    importance = log_sum_exp(negatives, scale=beta / temperature)
    log_r = log_sum_exp(negatives, scale=(1 + beta) / temperature) - importance + log_n
    # Without negatives it is -inf - -inf here; any number serves, as such a row is masked below.
    log_r = log_r.masked_fill(lonely, 0.0).unsqueeze(1)
    floor = (log_n - 1 / temperature).unsqueeze(1)
    own = positives + log_n.unsqueeze(1) + (math.log(tau_plus) if tau_plus else -math.inf)
    above = ~(log_r <= torch.logaddexp(own, floor + math.log1p(-tau_plus)))  # a NaN must not hide behind the floor
    share = (own - log_r).masked_fill(~above, -1.0)  # log(1 - e^share) and its gradient need share < 0
    corrected = log_r + torch.log(-torch.expm1(share)) - math.log1p(-tau_plus)
    log_g = torch.where(above, corrected, floor).masked_fill(lonely.unsqueeze(1), -torch.inf)
    return reduced((torch.logaddexp(positives, log_g) - positives).mean(1), reduction)
