"""AU-CL in the frame of MoCo v2: uniformity over the queue and over the queries of the batch."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from manyview.methods.hyper import AlignUniform
from manyview.methods.queued_views import QueuedViews, QueuedViewsConfig


@dataclass(frozen=True)
class AUCLMoCoConfig(AlignUniform, QueuedViewsConfig):
    """Alignment and uniformity with a momentum encoder and a queue (Wang & Isola, ICML 2020)."""


@final
class AUCLMoCo(QueuedViews):
    name = "au-cl-moco"
    title = "AU-CL (MoCo)"
    Config = AUCLMoCoConfig
    config: AUCLMoCoConfig
    of_all_ranks = True

    def loss(self, positives: Tensor, negatives: Tensor) -> Tensor:
        return self.config.of(positives, negatives)
