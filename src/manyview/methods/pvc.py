"""Poly-view contrast: one positive at a time among all views, averaged geometrically or arithmetically."""

from dataclasses import dataclass
from typing import Annotated, Literal, final

from torch import Tensor

from manyview.bounds import Positive, Several
from manyview.methods.base import Chance
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool
from manyview.objectives import pvc


@dataclass(frozen=True)
class PVCConfig(ManyViewsConfig):
    """Poly-view contrastive learning (Shidani et al., ICLR 2024)."""

    views: Annotated[int, Several] = 4
    """Views of each sample: each is a query in turn, the others are its positives."""
    temperature: Annotated[float, Positive] = 0.1
    """τ of the softmax."""
    mean: Literal["geometric", "arithmetic"] = "geometric"
    """How the likelihoods of a query's positives are averaged."""


@final
class PVC(ManyViews):
    name = "pvc"
    title = "Poly-view contrast"
    Config = PVCConfig
    config: PVCConfig

    @classmethod
    def chance(cls, config: PVCConfig, batch: int) -> Chance:
        return Chance(config.views * (batch - 1) + 1)

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        return pvc(views, temperature=self.config.temperature, mean=self.config.mean, **pool)
