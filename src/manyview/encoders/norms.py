"""Layers that replace batch normalisation in any network."""

from abc import abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyview import distributed
from manyview.errors import UserError

MOST_GROUPS = 32


class _LikeBatchNorm(_BatchNorm):
    """Stands in for the layer `like`: in eval mode, and in its state dict, it is that layer."""

    def __init__(self, like: _BatchNorm) -> None:
        super().__init__(like.num_features, like.eps, like.momentum, like.affine)
        # timm fuses dropout and activation into its normalisation layers.
        from timm.layers.norm_act import BatchNormAct2d

        self.drop = like.drop if isinstance(like, BatchNormAct2d) else nn.Identity()
        self.act = like.act if isinstance(like, BatchNormAct2d) else nn.Identity()
        self.load_state_dict(like.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(self._normalise(x) if self.training else super().forward(x)))  # type: ignore[no-any-return]

    @abstractmethod
    def _normalise(self, x: Tensor) -> Tensor:
        """A training batch."""

    def _running(self) -> tuple[Tensor, Tensor, float]:
        """Mean and variance, and how far they move towards the next batch's, which is counted."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        return self.running_mean, self.running_var, momentum

    def _check_input_dim(self, input: Tensor) -> None:
        """Vectors and images alike."""


class SplitBatchNorm(_LikeBatchNorm):
    """Batch normalisation in which each of `splits` contiguous parts of a training batch has statistics of its own.

    On one device it does what several devices do to each other's batches. The running statistics follow the mean over
    the parts.
    """

    def __init__(self, like: _BatchNorm, splits: int) -> None:
        super().__init__(like)
        self.splits = splits

    def _normalise(self, x: Tensor) -> Tensor:
        if len(x) % self.splits:
            raise UserError(
                f"a batch of {len(x)} images does not divide into --bn-splits {self.splits} equal parts: "
                "choose a --batch-size that does"
            )
        running_mean, running_var, momentum = self._running()
        means, variances = running_mean.repeat(self.splits, 1), running_var.repeat(self.splits, 1)
        parts = [
            F.batch_norm(part, mean, variance, self.weight, self.bias, True, momentum, self.eps)
            for part, mean, variance in zip(x.chunk(self.splits), means, variances, strict=True)
        ]
        running_mean.copy_(means.mean(0))
        running_var.copy_(variances.mean(0))
        return torch.cat(parts)

    def extra_repr(self) -> str:
        return f"{self.num_features}, splits={self.splits}"


class SyncBatchNorm(_LikeBatchNorm):
    """Batch normalisation by the statistics of the batches of all ranks, on any device (PyTorch's own needs GPUs)."""

    def _normalise(self, x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.ndim - 2))
        dims = [dim for dim in range(x.ndim) if dim != 1]
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        local = torch.stack((wide.mean(dims), wide.var(dims, correction=0)))
        means, variances = distributed.gather(local[None]).unbind(1)  # (W, C) each; the ranks' batches are equally long
        mean = means.mean(0)
        variance = variances.mean(0) + (means - mean).square().mean(0)
        running_mean, running_var, momentum = self._running()
        count = wide.numel() // wide.shape[1] * len(means)
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), momentum)
        scale = (variance + self.eps).rsqrt() * (1 if self.weight is None else self.weight)
        shift = (0 if self.bias is None else self.bias) - mean * scale
        return torch.addcmul(shift.view(shape), wide, scale.view(shape)).to(x.dtype)


class FixedBatchNorm(_LikeBatchNorm):
    """Batch normalisation by the statistics that come with trained weights, in training too."""

    def _normalise(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


def group_norm_like(norm: _BatchNorm) -> nn.GroupNorm:
    """Group normalisation of the same channels, in as many groups (at most 32) as divide them."""
    from timm.layers.norm_act import BatchNormAct2d, GroupNormAct

    groups = max(n for n in range(1, MOST_GROUPS + 1) if norm.num_features % n == 0)
    group = nn.GroupNorm(groups, norm.num_features, norm.eps, norm.affine)
    if isinstance(norm, BatchNormAct2d):
        group = GroupNormAct(norm.num_features, groups, norm.eps, norm.affine, apply_act=False)
        group.drop, group.act = norm.drop, norm.act
    if norm.affine:  # networks start some scales at 0, so that their residual branches begin as the identity
        group.weight.data.copy_(norm.weight.data)
        group.bias.data.copy_(norm.bias.data)
    return group


def replace_batch_norm(network: nn.Module, make: Callable[[_BatchNorm], nn.Module]) -> None:
    """Puts `make(layer)` in the place of every batch normalisation of `network`."""
    found = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    for parent, name, child in found:
        setattr(parent, name, make(child))
