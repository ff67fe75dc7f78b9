"""CL, as CACR calls it: the loss of SimCLR in the set-up in which CACR compares objectives."""

from dataclasses import dataclass
from typing import Annotated, final

from torch import Tensor

from manyview.bounds import Positive
from manyview.methods.base import Chance, SmallSet
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool
from manyview.objectives import nt_xent


@dataclass(frozen=True)
class CLConfig(ManyViewsConfig):
    """Conventional contrastive learning, CACR's baseline (Oord et al. 2018; Chen et al. 2020)."""

    temperature: Annotated[float, Positive] = 0.2
    """τ of the softmax: 0.2 on ImageNet, 0.19 on CIFAR and STL-10."""


@final
class CL(ManyViews):
    name = "cl"
    title = "CL"
    Config = CLConfig
    config: CLConfig

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float]:
        return {"temperature": 0.19}

    @classmethod
    def chance(cls, config: CLConfig, batch: int) -> Chance:
        return Chance(config.views * batch - 1)

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        return nt_xent(views, temperature=self.config.temperature, **pool)
