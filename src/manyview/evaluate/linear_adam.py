"""CACR's linear protocol for small sets: Adam on random crops and flips."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from manyview.bounds import AtLeastOne
from manyview.evaluate.linear_steps import LinearSteps
from manyview.evaluate.schedule import adam


@dataclass(frozen=True)
class LinearAdam(LinearSteps):
    """CACR's linear probe of small sets (App. C.1): Adam, β = (0.5, 0.999), on random crops and flips. The accuracy is
    that of the last epoch, not of the best."""

    name = "linear-adam"
    title = "Linear probe, Adam with augmentation"
    batch_size: Annotated[int, AtLeastOne] = 128
    """Batch size of the training."""

    def optimizer(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return adam(parameters, self.lr)
