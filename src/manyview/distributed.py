"""The ranks of a run. The only file that names torch.distributed; alone, everything here is the identity."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["gather", "rank", "world_size"]


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def gather(x: Tensor, *, dim: int = 0) -> Tensor:
    """The tensors of all ranks joined along `dim`, in rank order, with gradient.

    Each rank's loss depends on every rank's tensor, so a tensor's gradient is the SUM of what all ranks send back.
    """
    if world_size() == 1:
        return x
    return _Gather.apply(x, dim)  # type: ignore[no-any-return]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.dim, ctx.size = dim, x.shape[dim]
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        return total.narrow(ctx.dim, rank() * ctx.size, ctx.size), None
