"""CACR: positives and negatives are each contrasted within themselves; far positives and near negatives weigh most."""

from dataclasses import dataclass
from typing import Annotated, final

import torch
from torch import Tensor

from manyview.bounds import Several
from manyview.methods.base import SmallSet
from manyview.methods.hyper import DoublyContrastive
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool, contrasts, of_all_ranks


@dataclass(frozen=True)
class CACRConfig(DoublyContrastive, ManyViewsConfig):
    """Contrastive attraction and contrastive repulsion (Zheng et al., TMLR 2023)."""

    views: Annotated[int, Several] = 5
    """Views of each sample, K + 1: each is a query in turn, the K others are its positives. 5 or 2 in the paper."""


@final
class CACR(ManyViews):
    name = "cacr"
    title = "CACR"
    Config = CACRConfig
    config: CACRConfig

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float]:
        single, several = {"cifar10": (2.0, 0.9), "cifar100": (3.0, 2.0), "stl10": (3.0, 2.0)}[dataset]
        return {"t_neg": single if views == 2 else several}

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        if self.config.cost == "rbf":  # the log of a mean over all queries: each rank takes those of all
            views, pool = pool["pool"], of_all_ranks(pool)
        return torch.stack([self.config.of(*rows) for rows in contrasts(views, "same", **pool)]).mean()
