"""MV-DHEL: all pairs of views are aligned at once, and samples are told apart within each view."""

from dataclasses import dataclass
from typing import Annotated, final

from torch import Tensor

from manyview.bounds import Positive, Several
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool
from manyview.objectives import mv_dhel


@dataclass(frozen=True)
class MVDHELConfig(ManyViewsConfig):
    """Decoupled alignment of all pairs of views and repulsion within a view (Koromilas et al. 2025)."""

    views: Annotated[int, Several] = 4
    """Views of each sample, of which all pairs are positives."""
    temperature: Annotated[float, Positive] = 0.1
    """τ of the softmax."""


@final
class MVDHEL(ManyViews):
    name = "mv-dhel"
    title = "MV-DHEL"
    Config = MVDHELConfig
    config: MVDHELConfig

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        return mv_dhel(views, temperature=self.config.temperature, **pool)
