"""HN-CL: negatives that resemble the query weigh more, less the share of them that is of its class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.errors import UserError
from manyview.methods.base import Chance
from manyview.methods.many_views import ManyViews, ManyViewsConfig, contrasts
from manyview.objectives import hard_negative

__all__ = ["HNCL", "HNCLConfig", "HardNegatives"]


@dataclass(frozen=True)
class HardNegatives:
    temperature: float = 0.5
    """τ of the softmax."""
    beta: float = 1.0
    """β, how much harder negatives weigh; 0 makes it debiased contrast."""
    tau_plus: float = 0.1
    """τ⁺, the share of negatives taken to be of the query's own class; 0 with β = 0 makes it CL."""

    def __post_init__(self) -> None:
        if not 0 <= self.tau_plus < 1:
            raise UserError(f"--tau-plus {self.tau_plus} must be at least 0 and less than 1")

    def of(self, positives: Tensor, negatives: Tensor) -> Tensor:
        return hard_negative(positives, negatives, temperature=self.temperature, beta=self.beta, tau_plus=self.tau_plus)


@dataclass(frozen=True)
class HNCLConfig(HardNegatives, ManyViewsConfig):
    """Contrastive learning with hard negative samples (Robinson et al., ICLR 2021)."""


class HNCL(ManyViews):
    name = "hn-cl"
    title = "HN-CL"
    Config = HNCLConfig
    config: HNCLConfig

    @classmethod
    def chance(cls, config: HNCLConfig, batch: int) -> Chance:
        return Chance(config.views * (batch - 1) + 1)

    def loss(self, views: Tensor, pool: Tensor, offset: int) -> Tensor:
        return torch.stack([self.config.of(*rows) for rows in contrasts(views, pool, offset, "all")]).mean()
