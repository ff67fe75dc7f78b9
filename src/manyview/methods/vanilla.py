"""Vanilla multi-key contrast: the mean of the losses of M explicit query-key pairs, the plain way to many positives."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from manyview.bounds import Positive
from manyview.methods.base import MOCO_V2, QueueConfig, Queued, ViewBatch
from manyview.objectives import info_nce, similarity


@dataclass(frozen=True)
class VanillaConfig(QueueConfig):
    """MoCo v2 with M keys per query (JCL, Eq. 3)."""

    temperature: Annotated[float, Positive] = 0.2
    """τ of the softmax."""
    keys: Annotated[int, Positive] = 5
    """M, the number of positive keys of each sample."""
    all_branches: bool = False
    """Encode the positives by the query encoder and back-propagate through all M + 1 branches."""


@final
class Vanilla(Queued):
    name = "vanilla"
    title = "Vanilla multi-key"
    Config = VanillaConfig
    paper = replace(MOCO_V2, optim=replace(MOCO_V2.optim, batch_size=512, lr=0.06))
    on_small_images: ClassVar = {"temperature": 0.1}
    config: VanillaConfig

    @classmethod
    def view_count(cls, config: VanillaConfig) -> int:
        return 1 + config.keys

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        if self.config.all_branches:
            # The queue stays consistent only if its keys come from the slow encoder: one of them is encoded for it.
            queued = self.encode_keys(batch.images[1:2], batch)
            q, *branches = self.embed(batch.images.flatten(0, 1)).chunk(len(batch.images))
            k = torch.stack(branches, 1)  # (N, M, D)
        else:
            q = self.embed(batch.images[0])  # (N, D)
            queued = k = self.encode_keys(batch.images[1:], batch)  # (N, M, D)
        positives = similarity(q, k)
        loss = info_nce(positives, self.queue.similarity(q, batch.index), temperature=self.config.temperature)
        self.fresh.append((queued[:, 0], batch.index))
        return {"loss": loss, "positive": positives.detach().mean()}
