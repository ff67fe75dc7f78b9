"""Epochs and learning rate of classifiers that are trained in steps, and Adam as the papers use it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from manyview.bounds import AtLeastOne, Positive, PositiveShare, Share


@dataclass(frozen=True)
class Steps:
    """Training in epochs with a learning rate that decays in steps."""

    epochs: Annotated[int, AtLeastOne] = 100
    """Passes over the training set."""
    lr: Annotated[float, Positive] = 1e-3
    """Initial learning rate."""
    milestones: Annotated[tuple[float, ...], Share] = (0.6, 0.8)
    """When the learning rate decays, as fractions of the epochs: 60 and 80 of 100."""
    decay: Annotated[float, PositiveShare] = 0.2
    """Factor of the learning rate at each milestone."""
    batch_size: Annotated[int, AtLeastOne] = 256
    """Batch size of the training."""

    def lr_at(self, epoch: int) -> float:
        return self.lr * self.decay ** sum(epoch >= round(share * self.epochs) for share in self.milestones)


def adam(parameters: Iterable[Tensor], lr: float) -> torch.optim.Optimizer:
    """As CMC (E.1), CACR (C.1) and Wang and Isola set it."""
    return torch.optim.Adam(parameters, lr=lr, betas=(0.5, 0.999), eps=1e-8)
