"""HN-CL: hard negatives weigh more, with a correction for negatives of the query's own class."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from manyview.methods.base import Chance
from manyview.methods.hyper import HardNegatives
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool, contrasts


@dataclass(frozen=True)
class HNCLConfig(HardNegatives, ManyViewsConfig):
    """Contrastive learning with hard negative samples (Robinson et al., ICLR 2021)."""


@final
class HNCL(ManyViews):
    name = "hn-cl"
    title = "HN-CL"
    Config = HNCLConfig
    config: HNCLConfig

    @classmethod
    def chance(cls, config: HNCLConfig, batch: int) -> Chance:
        return Chance(config.views * (batch - 1) + 1)

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        return torch.stack([self.config.of(*rows) for rows in contrasts(views, "all", **pool)]).mean()
