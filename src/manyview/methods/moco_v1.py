"""MoCo v1: one momentum-encoded key per query, negatives from a queue of earlier keys."""

from dataclasses import dataclass
from typing import Annotated, final

from torch import Tensor

from manyview.bounds import Positive
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import EncoderConfig
from manyview.methods.base import Paper, QueueConfig, Queued, ViewBatch
from manyview.objectives import info_nce, similarity


@dataclass(frozen=True)
class MoCoV1Config(QueueConfig):
    """Momentum contrast (He et al., CVPR 2020)."""

    temperature: Annotated[float, Positive] = 0.07
    """τ of the softmax."""


@final
class MoCoV1(Queued):
    name = "moco-v1"
    title = "MoCo v1"
    Config = MoCoV1Config
    paper = Paper(
        ViewConfig(augment="moco-v1"),
        EncoderConfig(head="linear"),
        OptimConfig(batch_size=256, lr=0.03, epochs=200, schedule="step", milestones=(0.6, 0.8)),
    )
    config: MoCoV1Config

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        q = self.embed(batch.images[0])  # (N, D)
        k = self.encode_keys(batch.images[1:], batch)  # (N, 1, D), no gradient
        positives = similarity(q, k)
        loss = info_nce(positives, self.queue.similarity(q, batch.index), temperature=self.config.temperature)
        self.fresh.append((k[:, 0], batch.index))
        return {"loss": loss, "positive": positives.detach().mean()}
