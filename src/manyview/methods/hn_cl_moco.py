"""HN-CL in the frame of MoCo v2."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from manyview.methods.base import Chance
from manyview.methods.hyper import HardNegatives
from manyview.methods.queued_views import QueuedViews, QueuedViewsConfig


@dataclass(frozen=True)
class HNCLMoCoConfig(HardNegatives, QueuedViewsConfig):
    """Hard negatives with a momentum encoder and a queue (Robinson et al., ICLR 2021)."""


@final
class HNCLMoCo(QueuedViews):
    name = "hn-cl-moco"
    title = "HN-CL (MoCo)"
    Config = HNCLMoCoConfig
    config: HNCLMoCoConfig

    @classmethod
    def chance(cls, config: HNCLMoCoConfig, batch: int) -> Chance:
        return Chance(config.queue_size + (batch if config.with_intra_batch else 1))

    def loss(self, positives: Tensor, negatives: Tensor) -> Tensor:
        return self.config.of(positives, negatives)
