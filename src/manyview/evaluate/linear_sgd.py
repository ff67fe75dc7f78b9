"""The papers' linear protocol: SGD on random crops and flips."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from manyview.bounds import Positive, PositiveShare
from manyview.evaluate.linear_steps import LinearSteps


@dataclass(frozen=True)
class LinearSgd(LinearSteps):
    """The papers' linear probe: SGD, momentum 0.9, no weight decay, on random crops and flips. The accuracy is that of
    the last epoch, not of the best."""

    name = "linear-sgd"
    title = "Linear probe, SGD with augmentation"
    lr: Annotated[float, Positive] = 30.0
    """Learning rate: 30 for ImageNet, 10 for ImageNet-100 in JCL's experiments."""
    decay: Annotated[float, PositiveShare] = 0.1
    """Factor of the learning rate at each milestone."""

    def optimizer(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr, momentum=0.9)
