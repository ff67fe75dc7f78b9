"""SimCLR: two views of each sample, all other embeddings of the batch as negatives."""

from dataclasses import dataclass

from torch import Tensor

from manyview import distributed
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import EncoderConfig
from manyview.methods.base import Method, Paper, ViewBatch
from manyview.objectives import nt_xent

__all__ = ["SimCLR", "SimCLRConfig"]


@dataclass(frozen=True)
class SimCLRConfig:
    """A simple framework for contrastive learning (Chen et al., ICML 2020)."""

    temperature: float = 0.1
    """τ of the softmax."""


class SimCLR(Method):
    name = "simclr"
    Config = SimCLRConfig
    paper = Paper(
        ViewConfig(augment="simclr"),
        EncoderConfig(head="mlp"),
        OptimConfig(
            batch_size=4096,
            lr=0.3,
            lr_rule="linear",
            epochs=200,
            optimizer="lars",
            weight_decay=1e-6,
            warmup_epochs=10,
        ),
    )
    config: SimCLRConfig

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        z = self.embed(batch.views.flatten(0, 1)).unflatten(0, (2, -1))  # (2, N, D), one pass
        everyone = distributed.gather(z, dim=1)
        offset = distributed.rank() * z.shape[1]
        loss = nt_xent(z, temperature=self.config.temperature, pool=everyone, offset=offset)
        return {"loss": loss, "positive": (z[0] * z[1]).sum(1).detach().mean()}
