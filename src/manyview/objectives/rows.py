"""The parts of all objectives: similarities, and the expensive passes over all N×K pairs.

The passes keep no matrix but their argument and work in blocks that stay in the cache, which halves the memory of the
plain forms, and their time where memory for large matrices is fresh. An excluded pair is -inf whatever the scale.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyview.precision import at_least_float32

Reduction = Literal["mean", "none"]
LOG_OF_ZERO = -1000.0  # exp of it is exactly 0 in float64 too, and unlike -inf it may be multiplied by that 0


def similarity(query: Tensor, others: Tensor) -> Tensor:
    """Dot products of `query` (N, D) with its own `others` (N, M, D) -> (N, M), or shared ones (K, D) -> (N, K)."""
    with torch.autocast(query.device.type, enabled=False):  # bf16 similarities would drown JCL's variance in rounding
        query, others = at_least_float32(query), at_least_float32(others)
        if others.ndim == 3:
            return torch.matmul(others, query.unsqueeze(2)).squeeze(2)
        return query @ others.T


def log_sum_exp(rows: Tensor, *, scale: float) -> Tensor:
    """log Σ_j exp(scale · rows[i, j]) over `rows` (N, K) -> (N,); -inf for a row without a finite entry."""
    return _LogSumExp.apply(rows, scale)  # type: ignore[no-any-return]


def soft_mean(rows: Tensor, *, scale: float, detach_weights: bool = False) -> tuple[Tensor, Tensor]:
    """Means of `rows` (N, K) weighted by softmax(scale · rows), and the log-sum-exp of that softmax: (N,) and (N,).

    A scale of 0 weighs all finite entries alike. A row without any has the mean 0 and the log-sum-exp -inf.
    `detach_weights` keeps the gradient out of the weights.
    """
    return _SoftMean.apply(rows, scale, detach_weights)  # type: ignore[no-any-return]


def soft_plus_sum(rows: Tensor, offset: Tensor, *, scale: float) -> Tensor:
    """Σ_j log(1 + exp(scale · rows[i, j] + offset[i])) over `rows` (N, K) -> (N,), for a positive scale.

    `offset` (N,) gets no gradient.
    """
    return _SoftPlusSum.apply(rows, offset, scale)  # type: ignore[no-any-return]


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, scale: float) -> Tensor:
        result = rows.new_full((len(rows),), -torch.inf)
        if rows.shape[1]:
            for block, target in _blocks(rows, rows, result):
                target.copy_(torch.logsumexp(_scaled(block, scale), 1))
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
            _scaled(block, ctx.scale, out=target).sub_(shift).exp_().mul_(factor)
        return softmax, None


class _SoftMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, scale: float, detach_weights: bool) -> tuple[Tensor, Tensor]:
        mean, level = rows.new_zeros(len(rows)), rows.new_zeros(len(rows))
        log_sum = rows.new_full((len(rows),), -torch.inf)
        if rows.shape[1]:
            spare = _room_for_a_block(rows), _room_for_a_block(rows)
            for block, *targets in _blocks(rows, rows, mean, level, log_sum):
                values = _soft_mean(block, scale, *(room[: len(block)] for room in spare))
                for target, value in zip(targets, values, strict=True):
                    target.copy_(value)
        ctx.save_for_backward(rows, mean, level)
        ctx.scale, ctx.detach_weights = scale, detach_weights
        return mean, log_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, log_sum_gradient: Tensor) -> tuple[Tensor, None, None]:
        """With weights w, $∂mean/∂s_j = w_j (1 + scale (s_j - mean))$ and $∂log\\_sum/∂s_j = scale · w_j$."""
        rows, mean, level = ctx.saved_tensors
        slope = torch.zeros_like(gradient) if ctx.detach_weights else gradient
        offset = gradient + slope * (level - ctx.scale * mean) + ctx.scale * log_sum_gradient
        result, spare = torch.empty_like(rows), _room_for_a_block(rows)
        per_row = (x.unsqueeze(1) for x in (level, slope, offset))
        for block, target, shift, factor, rest in _blocks(rows, rows, result, *per_row):
            log_weights = _scaled(block, ctx.scale, out=target).sub_(shift).clamp_min_(LOG_OF_ZERO)
            weights = torch.exp(log_weights, out=spare[: len(block)])
            target.mul_(factor).add_(rest).mul_(weights)
        return result, None, None


class _SoftPlusSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, offset: Tensor, scale: float) -> Tensor:
        result = rows.new_zeros(len(rows))
        for block, shift, target in _blocks(rows, rows, offset.unsqueeze(1), result):
            terms = _scaled(block, scale).add_(shift)
            target.copy_(torch.logaddexp(terms, terms.new_zeros(()), out=terms).sum(1))
        ctx.save_for_backward(rows, offset)
        ctx.scale = scale
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        rows, offset = ctx.saved_tensors
        result = torch.empty_like(rows)
        per_row = (x.unsqueeze(1) for x in (offset, gradient * ctx.scale))
        for block, target, shift, factor in _blocks(rows, rows, result, *per_row):
            _scaled(block, ctx.scale, out=target).add_(shift).sigmoid_().mul_(factor)
        return result, None, None


def _soft_mean(block: Tensor, scale: float, weights: Tensor, terms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, finite level and log-sum-exp of each row; `weights` and `terms` are overwritten."""
    _scaled(block, scale, out=weights)
    top = weights.amax(1)
    top.masked_fill_(top == -torch.inf, 0.0)
    total = weights.sub_(top.unsqueeze(1)).exp_().sum(1)
    # The largest entry weighs 1, so the sum of a row is at least 1, or 0 if nothing is finite.
    divisor = total.clamp_min(1.0)
    torch.clamp_min(block, torch.finfo(block.dtype).min, out=terms)  # 0 · -inf would be NaN
    return terms.mul_(weights).sum(1) / divisor, top + divisor.log(), top + total.log()


def _scaled(block: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """scale · block, in which what is excluded stays -inf also if the scale is zero or negative."""
    result = torch.mul(block, scale, out=out)
    return result if scale > 0 else result.masked_fill_(block == -torch.inf, -torch.inf)


def _blocks(shape_of: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of every tensor, a block of the first at a time."""
    length = _block_length(shape_of)
    return zip(*(tensor.split(length) for tensor in tensors), strict=True)


def _block_length(rows: Tensor) -> int:
    """Rows of some 2^20 elements on a CPU, all at once elsewhere: smaller blocks stay nearer in the cache, but threads
    that must wake for each operation cost more than that on a busy machine."""
    n, k = rows.shape
    return max(1, 2**20 // max(1, k)) if rows.device.type == "cpu" else max(1, n)


def _room_for_a_block(rows: Tensor) -> Tensor:
    """To be written to by one block after the other: fresh memory for each costs more than the arithmetic."""
    return torch.empty_like(rows[: _block_length(rows)])


def finite_counts(rows: Tensor) -> Tensor:
    """How many entries of each row are not excluded: (N,)."""
    # In blocks, as the sum of a boolean matrix makes an int64 one of it first.
    return torch.cat([(block != -torch.inf).sum(1) for block in rows.split(_block_length(rows))])


def log_mean_exp(terms: Tensor, count: Tensor) -> Tensor:
    """log(Σ exp(terms) / count), one number for all `terms` (N,); 0 if there is nothing to count."""
    total = log_sum_exp(terms.unsqueeze(0), scale=1.0).squeeze(0)
    return (total - count.to(total.dtype).log()).masked_fill(count == 0, 0.0)


def reduced(loss: Tensor, reduction: Reduction) -> Tensor:
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction is 'mean' or 'none', not {reduction!r}")
    return loss.mean() if reduction == "mean" else loss
