"""Noise-contrastive estimation: each pair is classified as data or noise."""

import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.objectives.rows import Reduction, finite_counts, log_sum_exp, reduced, soft_plus_sum
from manyview.precision import at_least_float32


def nce(
    positives: Tensor,
    negatives: Tensor,
    *,
    temperature: float,
    n: int,
    z: float | Tensor,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""CMC's approximation of a softmax over all n samples, Eq. 9-11, for m negatives drawn uniformly ($p_n=1/n$):

    $$-\log P(s_i)-\sum_{j=1}^m\log(1-P(s_{ij})),\qquad P(s)=\frac{e^{s/τ}/z}{e^{s/τ}/z+m/n}$$

    Eq. 11 writes the noise as an expectation; it is the sum over the m draws, as Eq. 10 counts them. `z` stands for the
    sum of $e^{s/τ}$ over all n, a constant: see `normaliser`. M > 1 positives are averaged.
    """
    positives, negatives = at_least_float32(positives), at_least_float32(negatives)
    log_z = torch.as_tensor(z, dtype=torch.float64, device=negatives.device).log()
    drawn = finite_counts(negatives).double()
    # The log-odds of data against noise are s/τ + offset. Without noise a positive is sure, and nothing is summed.
    sure, offset = ((n / count).log() - log_z for count in (drawn, drawn.clamp_min(1.0)))
    attracted = -F.logsigmoid(positives / temperature + sure.to(positives.dtype).unsqueeze(1)).mean(1)
    return reduced(attracted + soft_plus_sum(negatives, offset.to(negatives.dtype), scale=1 / temperature), reduction)


@torch.no_grad()
def normaliser(positives: Tensor, negatives: Tensor, *, temperature: float, n: int) -> Tensor:
    r"""$Z_0$, CMC's estimate of the sum of Eq. 9 over all n samples from the scores of the first batch (B.1):

    $$n\cdot\mathrm{mean}\big(e^{s/τ}\big)$$

    over positives and negatives alike, as in the released code; float64, as $e^{s/τ}$ may be large. With several ranks
    it is the mean of theirs.
    """
    matrices = [at_least_float32(scores) for scores in (positives, negatives)]
    rows = torch.cat([log_sum_exp(scores, scale=1 / temperature) for scores in matrices])
    count = sum(finite_counts(scores).sum() for scores in matrices)
    return n * rows.double().logsumexp(0).exp() / count
