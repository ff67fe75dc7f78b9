"""MV-DHEL: all pairs of views are aligned at once, and samples are told apart within each view."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from manyview.methods.many_views import ManyViews, ManyViewsConfig
from manyview.objectives import mv_dhel

__all__ = ["MVDHEL", "MVDHELConfig"]


@dataclass(frozen=True)
class MVDHELConfig(ManyViewsConfig):
    """Decoupled alignment of all pairs of views and repulsion within a view (Koromilas et al. 2025)."""

    views: int = 4
    """Views of each sample, of which all pairs are positives."""
    temperature: float = 0.1
    """τ of the softmax."""


@final
class MVDHEL(ManyViews):
    name = "mv-dhel"
    title = "MV-DHEL"
    Config = MVDHELConfig
    config: MVDHELConfig

    def loss(self, views: Tensor, pool: Tensor, offset: int) -> Tensor:
        return mv_dhel(views, temperature=self.config.temperature, pool=pool, offset=offset)
