"""AU-CL: positives are aligned, and samples spread uniformly over the sphere."""

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.methods.many_views import ManyViews, ManyViewsConfig, SmallSet, contrasts
from manyview.objectives import align_uniform

__all__ = ["AUCL", "AUCLConfig", "AlignUniform"]


@dataclass(frozen=True)
class AlignUniform:
    t: float = 3.0
    """t of the uniformity's kernel: 3 on ImageNet, 2 on CIFAR and STL-10."""
    align_weight: float = 1.0
    """Weight of the alignment."""
    uniform_weight: float = 1.0
    """Weight of the uniformity."""
    contrastive_weight: float = 0.0
    """Weight of an InfoNCE beside them, an option of the released code."""
    temperature: float = 0.2
    """τ of that InfoNCE: 0.2 on ImageNet, 0.19 on CIFAR and STL-10."""

    def of(self, positives: Tensor, negatives: Tensor) -> Tensor:
        return align_uniform(
            positives,
            negatives,
            t=self.t,
            align_weight=self.align_weight,
            uniform_weight=self.uniform_weight,
            contrastive_weight=self.contrastive_weight,
            temperature=self.temperature,
        )


@dataclass(frozen=True)
class AUCLConfig(AlignUniform, ManyViewsConfig):
    """Alignment and uniformity on the hypersphere (Wang & Isola, ICML 2020)."""


class AUCL(ManyViews):
    name = "au-cl"
    title = "AU-CL"
    Config = AUCLConfig
    config: AUCLConfig

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float]:
        return {"t": 2.0, "temperature": 0.19}

    def loss(self, views: Tensor, pool: Tensor, offset: int) -> Tensor:
        # The log of a mean over all pairs is no mean of the ranks' logs: each rank takes the queries of all.
        return torch.stack([self.config.of(*rows) for rows in contrasts(pool, pool, 0, "same")]).mean()
