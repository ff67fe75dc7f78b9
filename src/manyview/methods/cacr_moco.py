"""CACR in the frame of MoCo v2 (Algorithm 3)."""

from dataclasses import dataclass
from typing import Annotated, final

from torch import Tensor

from manyview.bounds import Several
from manyview.encoders import Encoder
from manyview.methods.hyper import DoublyContrastive
from manyview.methods.queued_views import QueuedViews, QueuedViewsConfig


@dataclass(frozen=True)
class CACRMoCoConfig(DoublyContrastive, QueuedViewsConfig):
    """CACR with a momentum encoder and a queue (Zheng et al., TMLR 2023, Algorithm 3)."""

    views: Annotated[int, Several] = 5
    """Views of each sample, K + 1: each is a query in turn, the keys of the K others are its positives. 5 or 2 in the
    paper."""


@final
class CACRMoCo(QueuedViews):
    name = "cacr-moco"
    title = "CACR (MoCo)"
    Config = CACRMoCoConfig
    config: CACRMoCoConfig

    def __init__(self, config: CACRMoCoConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        self.of_all_ranks = config.cost == "rbf"

    def loss(self, positives: Tensor, negatives: Tensor) -> Tensor:
        # Positives come from the momentum encoder: the algorithm keeps the gradient out of their weights.
        return self.config.of(positives, negatives, detach_positive_weights=True)
