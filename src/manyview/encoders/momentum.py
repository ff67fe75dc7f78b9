"""The key encoder: it follows the query encoder by a moving average and never sees a gradient."""

import copy

import torch
from torch import Tensor, nn

from manyview import counter
from manyview.encoders.encoder import Encoder

__all__ = ["Momentum"]

_SHUFFLE = 0x53487566  # keeps the orders of keys apart from all other draws of the same seed


class Momentum(nn.Module):
    """A copy of `encoder`, head included, whose parameters move by θ_k ← m θ_k + (1 − m) θ_q (MoCo, Eq. 2).

    `momentum` is a plain attribute: as a buffer it would override the flag of a resumed run.
    """

    def __init__(self, encoder: Encoder, momentum: float = 0.999) -> None:
        super().__init__()
        self.momentum = momentum
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)

    @torch.no_grad()
    def update(self, encoder: Encoder) -> None:
        """Only parameters follow: the statistics of batch normalisation are those of the keys themselves."""
        torch._foreach_lerp_(tuple(self.encoder.parameters()), tuple(encoder.parameters()), 1 - self.momentum)

    @torch.no_grad()
    def encode(self, views: Tensor, *, seed: int, step: int) -> Tensor:
        """The keys (N, M, D) of views (M, N, 3, h, w), all in one pass.

        Where parts of a batch are normalised apart, the keys are encoded in an order of (seed, step): otherwise a
        query and its key would share the company that they are normalised with, and betray each other by it.
        """
        m, n = views.shape[:2]
        images = views.flatten(0, 1)
        if self.encoder.config.bn_splits > 1:  # without parts the order changes nothing
            order = counter.permutation(m * n, seed, _SHUFFLE, step).to(images.device)
            keys = self.encoder(images[order])[order.argsort()]
        else:
            keys = self.encoder(images)
        return keys.view(m, n, -1).transpose(0, 1)  # type: ignore[no-any-return]
