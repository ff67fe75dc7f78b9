"""CACR: positives and negatives are each contrasted within themselves; far positives and near negatives weigh most."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from manyview.errors import UserError
from manyview.methods.many_views import ManyViews, ManyViewsConfig, SmallSet, contrasts
from manyview.objectives import cacr

__all__ = ["CACR", "CACRConfig", "DoublyContrastive"]


@dataclass(frozen=True)
class DoublyContrastive:
    t_pos: float = 1.0
    """t⁺: how much more the farther positives weigh. 1.0 in all of the paper's experiments (searched in 0.5-3.0)."""
    t_neg: float = 2.0
    """t⁻: how much more the nearer negatives weigh. The paper's values: 2.0 on ImageNet; on CIFAR-10, CIFAR-100 and
    STL-10 2.0, 3.0, 3.0 with one positive (K = 1) and 0.9, 2.0, 2.0 with four (`--preset paper-cifar` takes those)."""
    cost: Literal["euclidean", "inner", "rbf"] = "euclidean"
    """What a pair costs: squared distance (Eq. 12), negative inner product, or RBF in the repulsion (Eq. 14)."""
    rbf_t: float = 2.0
    """t of the RBF cost."""
    positive_weights: Literal["far", "near", "uniform"] = "far"
    """Positives that weigh most (Table 10's variants); uniform on both sides is UAUR (Eq. 11)."""
    negative_weights: Literal["near", "far", "uniform"] = "near"
    """Negatives that weigh most."""
    margin: float | None = None
    """Margin of the triplet form (App. B.5): queries whose attraction is less than their repulsion by it rest."""

    def __post_init__(self) -> None:
        if self.cost == "rbf" and self.margin is not None:
            raise UserError(
                f"--margin {self.margin} needs a cost of each query, and --cost rbf is one of all: leave one out"
            )

    def of(self, positives: Tensor, negatives: Tensor, *, detach_positive_weights: bool = False) -> Tensor:
        return cacr(
            positives,
            negatives,
            t_pos=self.t_pos,
            t_neg=self.t_neg,
            cost=self.cost,
            rbf_t=self.rbf_t,
            positive_weights=self.positive_weights,
            negative_weights=self.negative_weights,
            detach_positive_weights=detach_positive_weights,
            margin=self.margin,
        )


@dataclass(frozen=True)
class CACRConfig(DoublyContrastive, ManyViewsConfig):
    """Contrastive attraction and contrastive repulsion (Zheng et al., TMLR 2023)."""

    views: int = 5
    """Views of each sample, K + 1: each is a query in turn, the K others are its positives. 5 or 2 in the paper."""


class CACR(ManyViews):
    name = "cacr"
    title = "CACR"
    Config = CACRConfig
    config: CACRConfig

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float]:
        single, several = {"cifar10": (2.0, 0.9), "cifar100": (3.0, 2.0), "stl10": (3.0, 2.0)}[dataset]
        return {"t_neg": single if views == 2 else several}

    def loss(self, views: Tensor, pool: Tensor, offset: int) -> Tensor:
        if self.config.cost == "rbf":  # the log of a mean over all queries: each rank takes those of all
            views, offset = pool, 0
        return torch.stack([self.config.of(*rows) for rows in contrasts(views, pool, offset, "same")]).mean()
