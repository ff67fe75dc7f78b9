"""CMC over augmented views: every pair of views is contrasted in both directions, with negatives in the other view."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from manyview.methods.base import Chance
from manyview.methods.many_views import ManyViews, ManyViewsConfig
from manyview.objectives import cmc_full_graph

__all__ = ["CMCAug", "CMCAugConfig"]


@dataclass(frozen=True)
class CMCAugConfig(ManyViewsConfig):
    """Contrastive multiview coding's full graph of augmented views (Tian et al., ECCV 2020; K = 4 in CACR's tables)."""

    views: int = 5
    """Views of each sample, K + 1, of which all pairs are contrasted."""
    temperature: float = 0.07
    """τ of the softmax."""


@final
class CMCAug(ManyViews):
    name = "cmc-aug"
    title = "CMC of augmented views"
    Config = CMCAugConfig
    config: CMCAugConfig

    @classmethod
    def chance(cls, config: CMCAugConfig, batch: int) -> Chance:
        return Chance(batch)

    def loss(self, views: Tensor, pool: Tensor, offset: int) -> Tensor:
        return cmc_full_graph(views, temperature=self.config.temperature, pool=pool, offset=offset)
