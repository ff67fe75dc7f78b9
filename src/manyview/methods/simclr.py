"""SimCLR: two views of each sample, all other embeddings of the batch as negatives."""

from dataclasses import dataclass
from typing import Annotated, final

from torch import Tensor

from manyview.bounds import Positive
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import EncoderConfig
from manyview.methods.base import Chance, Paper
from manyview.methods.many_views import ManyViews, ManyViewsConfig, Pool
from manyview.objectives import nt_xent


@dataclass(frozen=True)
class SimCLRConfig(ManyViewsConfig):
    """A simple framework for contrastive learning (Chen et al., ICML 2020)."""

    temperature: Annotated[float, Positive] = 0.1
    """τ of the softmax."""


@final
class SimCLR(ManyViews):
    name = "simclr"
    title = "SimCLR"
    Config = SimCLRConfig
    paper = Paper(
        ViewConfig(augment="simclr"),
        EncoderConfig(head="mlp"),
        OptimConfig(
            batch_size=4096, lr=0.3, lr_rule="linear", epochs=200, optimizer="lars", weight_decay=1e-6, warmup_epochs=10
        ),
    )
    config: SimCLRConfig

    @classmethod
    def chance(cls, config: SimCLRConfig, batch: int) -> Chance:
        return Chance(config.views * batch - 1)

    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        return nt_xent(views, temperature=self.config.temperature, **pool)
