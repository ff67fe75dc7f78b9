"""MV-InfoNCE: one term for each sample, in which all pairs of its views stand together."""

from dataclasses import dataclass
from typing import Annotated, final

from torch import Tensor

from manyview.bounds import Positive, Several
from manyview.methods.base import Chance
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool
from manyview.objectives import mv_infonce


@dataclass(frozen=True)
class MVInfoNCEConfig(ManyViewsConfig):
    """InfoNCE of all pairs of views at once (Koromilas et al. 2025)."""

    views: Annotated[int, Several] = 4
    """Views of each sample, of which all pairs are positives."""
    temperature: Annotated[float, Positive] = 0.1
    """τ of the softmax."""
    same_view: bool = True
    """Other samples in the query's own view are negatives too: so in the released code, not in the printed formula."""


@final
class MVInfoNCE(ManyViews):
    name = "mv-infonce"
    title = "MV-InfoNCE"
    Config = MVInfoNCEConfig
    config: MVInfoNCEConfig

    @classmethod
    def chance(cls, config: MVInfoNCEConfig, batch: int) -> Chance:
        return Chance((config.views * batch - 1) / (config.views - 1) if config.same_view else batch)

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        return mv_infonce(views, temperature=self.config.temperature, same_view=self.config.same_view, **pool)
