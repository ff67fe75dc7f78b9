"""CMC over augmented views: every pair of views is contrasted in both directions, with negatives in the other view."""

from dataclasses import dataclass
from typing import Annotated, final

from torch import Tensor

from manyview.bounds import Positive, Several
from manyview.methods.base import Chance
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool
from manyview.objectives import cmc_full_graph


@dataclass(frozen=True)
class CMCAugConfig(ManyViewsConfig):
    """Contrastive multiview coding's full graph of augmented views (Tian et al., ECCV 2020; K = 4 in CACR's tables)."""

    views: Annotated[int, Several] = 5
    """Views of each sample, K + 1, of which all pairs are contrasted."""
    temperature: Annotated[float, Positive] = 0.07
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

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        return cmc_full_graph(views, temperature=self.config.temperature, **pool)
