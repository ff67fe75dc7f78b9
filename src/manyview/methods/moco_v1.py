"""MoCo v1: one momentum-encoded key per query, negatives from a queue of earlier keys."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import Encoder, EncoderConfig, Momentum
from manyview.methods.base import Method, Paper, ViewBatch, check_queue
from manyview.negatives import Queue
from manyview.objectives import info_nce, similarity

__all__ = ["MoCoV1", "MoCoV1Config"]


@dataclass(frozen=True)
class MoCoV1Config:
    """Momentum contrast (He et al., CVPR 2020)."""

    temperature: float = 0.07
    """τ of the softmax."""
    queue_size: int = 65_536
    """K, the number of negatives kept from earlier batches; at most the number of samples."""
    momentum: float = 0.999
    """Share of the key encoder that stays in each step; the rest follows the query encoder."""
    queue_start: Literal["random", "empty"] = "random"
    """Random unit vectors as negatives until real keys replace them, or slots masked until they are filled."""
    mask_own: bool = False
    """Never take a sample's own old keys as its negatives."""
    key_passes: int = 1
    """Batches in which the keys of a step are encoded, with their own batch statistics: more of them need less memory
    (with as many as there are keys per sample, one is as large as the batch of queries)."""


class MoCoV1(Method):
    name = "moco-v1"
    Config = MoCoV1Config
    paper = Paper(
        ViewConfig(augment="moco-v1"),
        EncoderConfig(head="linear"),
        OptimConfig(batch_size=256, lr=0.03, epochs=200, schedule="step", milestones=(0.6, 0.8)),
    )
    config: MoCoV1Config

    def __init__(self, config: MoCoV1Config, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        check_queue(config.queue_size, samples)
        self.keys = Momentum(encoder, config.momentum, passes=config.key_passes)
        self.queue = Queue(config.queue_size, encoder.dim, start=config.queue_start, mask_own=config.mask_own)
        self.fresh: list[tuple[Tensor, Tensor]] = []  # keys and sample numbers of this step, enqueued after it

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        q = self.embed(batch.views[0])  # (N, D)
        k = self.encode_keys(batch)  # (N, 1, D)
        positives = similarity(q, k)
        loss = info_nce(positives, self.queue.similarity(q, batch.index), temperature=self.config.temperature)
        self.fresh.append((k[:, 0], batch.index))
        return {"loss": loss, "positive": positives.detach().mean()}

    def encode_keys(self, batch: ViewBatch) -> Tensor:
        """The keys (N, M, D) of all views but the query's, without gradient."""
        return self.keys.encode(batch.views[1:], seed=self.seed, step=batch.step, part=batch.part)

    def after_step(self) -> None:
        self.keys.update(self.encoder)
        keys, index = zip(*self.fresh, strict=True)
        self.queue.push(torch.cat(keys), torch.cat(index))
        self.fresh.clear()
