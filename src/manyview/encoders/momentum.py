"""The key encoder: it follows the query encoder by a moving average and never sees a gradient."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyview import counter, distributed
from manyview.encoders.encoder import Encoder
from manyview.encoders.norms import SyncBatchNorm

__all__ = ["Momentum"]

_SHUFFLE = 0x53487566  # keeps the orders of keys apart from all other draws of the same seed


class Momentum(nn.Module):
    """A copy of `encoder`, head included, whose parameters move by θ_k ← m θ_k + (1 − m) θ_q (MoCo, Eq. 2).

    `passes` bounds the memory: so many batches are made of the keys of a step. Both are plain attributes: as buffers
    they would override the flags of a resumed run.
    """

    def __init__(self, encoder: Encoder, momentum: float = 0.999, *, passes: int = 1) -> None:
        super().__init__()
        self.momentum, self.passes = momentum, passes
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)
        self._own_statistics = any(
            isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm) for layer in encoder.modules()
        )

    @torch.no_grad()
    def update(self, encoder: Encoder) -> None:
        """Only parameters follow: the statistics of batch normalisation are those of the keys themselves."""
        torch._foreach_lerp_(tuple(self.encoder.parameters()), tuple(encoder.parameters()), 1 - self.momentum)

    @torch.no_grad()
    def encode(self, views: Any, *, seed: int, step: int, part: int = 0) -> Any:
        """The keys (N, M, D) of views (M, N, 3, h, w); of towers by view, of fields by name.

        Where parts of a batch are normalised apart, the N·M keys of all ranks are encoded in an order of (seed, step,
        part of the step), wherever it puts them: otherwise a query and its key would share the company that they are
        normalised with, and betray each other by it (Shuffle-BN; JCL, Algorithm 1, shuffles the M′ keys jointly).
        """
        m, n = next(iter(views.values()) if isinstance(views, Mapping) else iter([views])).shape[:2]
        images = _each(views, lambda view: view.flatten(0, 1))
        if not self._shuffles():
            return _each(self._encode(images), lambda keys: keys.view(m, n, -1).transpose(0, 1))
        order = counter.permutation(distributed.world_size() * n * m, seed, _SHUFFLE, step, part)
        sample, view = order // m, order % m
        place = (sample // n * m + view) * n + sample % n  # on the ranks a sample's views lie N apart

        def sent(view: Tensor) -> Tensor:
            rows = view.permute(0, 2, 3, 1)  # the channels lie last in memory, and shall do so on arrival
            return distributed.permute(rows, place).permute(0, 3, 1, 2)

        keys = self._encode(_each(images, sent))
        return _each(keys, lambda each: distributed.permute(each, order.argsort()).view(n, m, -1))

    def _shuffles(self) -> bool:
        parts = distributed.world_size() * self.encoder.config.bn_splits * self.passes
        return self._own_statistics and parts > 1

    def _encode(self, images: Any) -> Any:
        if isinstance(images, Tensor):
            return torch.cat([self.encoder(part) for part in images.chunk(self.passes)])
        fields = {name: field.chunk(self.passes) for name, field in images.items()}
        parts = [self.encoder({name: field[i] for name, field in fields.items()}) for i in range(self.passes)]
        return {view: torch.cat([part[view] for part in parts]) for view in parts[0]}


def _each(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Of one tensor, or of each by name."""
    return function(x) if isinstance(x, Tensor) else {name: function(each) for name, each in x.items()}
