"""MoCo v2: MoCo with an MLP head, stronger views, a warmer softmax and a cosine schedule."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, final

from torch import Tensor

from manyview.bounds import Positive
from manyview.methods.base import MOCO_V2, QueueConfig, Queued, ViewBatch
from manyview.objectives import info_nce, similarity


@dataclass(frozen=True)
class MoCoV2Config(QueueConfig):
    """Improved baselines with momentum contrast (Chen et al., 2020)."""

    temperature: Annotated[float, Positive] = 0.2
    """τ of the softmax."""


@final
class MoCoV2(Queued):
    name = "moco-v2"
    title = "MoCo v2"
    Config = MoCoV2Config
    paper = MOCO_V2
    on_small_images: ClassVar = {"temperature": 0.1}
    config: MoCoV2Config

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        q = self.embed(batch.images[0])  # (N, D)
        k = self.encode_keys(batch.images[1:], batch)  # (N, 1, D), no gradient
        positives = similarity(q, k)
        loss = info_nce(positives, self.queue.similarity(q, batch.index), temperature=self.config.temperature)
        self.fresh.append((k[:, 0], batch.index))
        return {"loss": loss, "positive": positives.detach().mean()}
