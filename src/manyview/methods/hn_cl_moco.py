"""HN-CL in the frame of MoCo v2."""

from dataclasses import dataclass

from torch import Tensor

from manyview.methods.hn_cl import HardNegatives
from manyview.methods.queued_views import QueuedViews, QueuedViewsConfig

__all__ = ["HNCLMoCo", "HNCLMoCoConfig"]


@dataclass(frozen=True)
class HNCLMoCoConfig(HardNegatives, QueuedViewsConfig):
    """Hard negatives with a momentum encoder and a queue (Robinson et al., ICLR 2021)."""


class HNCLMoCo(QueuedViews):
    name = "hn-cl-moco"
    Config = HNCLMoCoConfig
    config: HNCLMoCoConfig

    def loss(self, positives: Tensor, negatives: Tensor) -> Tensor:
        return self.config.of(positives, negatives)
