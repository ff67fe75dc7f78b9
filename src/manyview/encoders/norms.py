"""What may stand in the place of batch normalisation, in any network."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from timm.layers.norm_act import BatchNormAct2d, GroupNormAct
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyview.errors import UserError

__all__ = ["SplitBatchNorm", "group_norm_like", "replace_batch_norm"]

MOST_GROUPS = 32


class SplitBatchNorm(_BatchNorm):
    """Batch normalisation in which each of `splits` contiguous parts of a training batch has statistics of its own.

    On one device it does what several devices do to each other's batches. The running statistics follow the mean over
    the parts; in eval mode, and in its state dict, it is the layer `like` that it replaces.
    """

    def __init__(self, like: _BatchNorm, splits: int) -> None:
        super().__init__(like.num_features, like.eps, like.momentum, like.affine)
        self.splits = splits
        # timm fuses dropout and activation into its normalisation layers.
        self.drop = like.drop if isinstance(like, BatchNormAct2d) else nn.Identity()
        self.act = like.act if isinstance(like, BatchNormAct2d) else nn.Identity()
        self.load_state_dict(like.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(self._split(x) if self.training else super().forward(x)))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        if len(x) % self.splits:
            raise UserError(
                f"a batch of {len(x)} images does not divide into --bn-splits {self.splits} equal parts: "
                "choose a --batch-size that does"
            )
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        means, variances = self.running_mean.repeat(self.splits, 1), self.running_var.repeat(self.splits, 1)
        parts = [
            F.batch_norm(part, mean, variance, self.weight, self.bias, True, momentum, self.eps)
            for part, mean, variance in zip(x.chunk(self.splits), means, variances, strict=True)
        ]
        self.running_mean.copy_(means.mean(0))
        self.running_var.copy_(variances.mean(0))
        return torch.cat(parts)

    def _check_input_dim(self, input: Tensor) -> None:
        """Vectors and images alike."""

    def extra_repr(self) -> str:
        return f"{self.num_features}, splits={self.splits}"


def group_norm_like(norm: _BatchNorm) -> nn.GroupNorm:
    """Group normalisation of the same channels, in as many groups (at most 32) as divide them."""
    groups = max(n for n in range(1, MOST_GROUPS + 1) if norm.num_features % n == 0)
    group = nn.GroupNorm(groups, norm.num_features, norm.eps, norm.affine)
    if isinstance(norm, BatchNormAct2d):
        group = GroupNormAct(norm.num_features, groups, norm.eps, norm.affine, apply_act=False)
        group.drop, group.act = norm.drop, norm.act
    if norm.affine:  # networks start some scales at 0, so that their residual branches begin as the identity
        group.weight.data.copy_(norm.weight.data)
        group.bias.data.copy_(norm.bias.data)
    return group


def replace_batch_norm(network: nn.Module, make: Callable[[_BatchNorm], nn.Module]) -> int:
    """Puts `make(layer)` in the place of every batch normalisation of `network`; how many there were."""
    found = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    for parent, name, child in found:
        setattr(parent, name, make(child))
    return len(found)
