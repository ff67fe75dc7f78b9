"""The papers' linear protocol: SGD on random crops and flips."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from manyview.bounds import Positive, PositiveShare
from manyview.evaluate.linear_steps import LinearSteps

__all__ = ["LinearSgd"]


@dataclass(frozen=True)
class LinearSgd(LinearSteps):
    """The papers' linear protocol: SGD with momentum 0.9, without weight decay, on random crops and flips; the last
    epoch counts, never the best."""

    name = "linear-sgd"
    title = "Linear probe, SGD with augmentation"
    lr: Annotated[float, Positive] = 30.0
    """Learning rate: 30 for ImageNet, 10 for ImageNet-100 in JCL's experiments."""
    decay: Annotated[float, PositiveShare] = 0.1
    """Factor by which it falls."""

    def optimizer(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr, momentum=0.9)
