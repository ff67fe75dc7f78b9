"""How the classifiers are trained that are not fitted to the end: the learning rate over the epochs, and Adam."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.errors import UserError

__all__ = ["Steps", "adam"]


@dataclass(frozen=True)
class Steps:
    """Steps of one size, with a learning rate that falls; the last epoch counts, never the best."""

    epochs: int = 100
    """Passes over the training set."""
    lr: float = 1e-3
    """Learning rate at the beginning."""
    milestones: tuple[float, ...] = (0.6, 0.8)
    """Where the learning rate falls, as shares of the epochs: 60 and 80 of 100."""
    decay: float = 0.2
    """Factor by which it falls."""
    batch_size: int = 256
    """Samples per training step."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UserError(f"epochs {self.epochs} trains nothing: use --epochs 1 or more")
        if self.batch_size < 1:
            raise UserError(f"batch size {self.batch_size} holds no sample: use --batch-size {type(self).batch_size}")
        if not self.lr > 0:
            raise UserError(f"lr {self.lr} must be positive: use --lr {type(self).lr:g}")
        if not 0 < self.decay <= 1:
            raise UserError(f"decay {self.decay} is not above 0 and at most 1: use --decay {type(self).decay:g}")

    def lr_at(self, epoch: int) -> float:
        return self.lr * self.decay ** sum(epoch >= round(share * self.epochs) for share in self.milestones)


def adam(parameters: Iterable[Tensor], lr: float) -> torch.optim.Optimizer:
    """As CMC (E.1), CACR (C.1) and Wang and Isola set it."""
    return torch.optim.Adam(parameters, lr=lr, betas=(0.5, 0.999), eps=1e-8)
