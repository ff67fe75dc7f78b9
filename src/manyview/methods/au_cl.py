"""AU-CL: positives are aligned, and samples spread uniformly over the sphere."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from manyview.methods.base import SmallSet
from manyview.methods.hyper import AlignUniform
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool, contrasts, of_all_ranks


@dataclass(frozen=True)
class AUCLConfig(AlignUniform, ManyViewsConfig):
    """Alignment and uniformity on the hypersphere (Wang & Isola, ICML 2020)."""


@final
class AUCL(ManyViews):
    name = "au-cl"
    title = "AU-CL"
    Config = AUCLConfig
    config: AUCLConfig

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float]:
        return {"t": 2.0, "temperature": 0.19}

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        # The log of a mean over all pairs is no mean of the ranks' logs: each rank takes the queries of all.
        rows = contrasts(pool["pool"], "same", **of_all_ranks(pool))
        return torch.stack([self.config.of(*each) for each in rows]).mean()
