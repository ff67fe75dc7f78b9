"""CMC with a momentum encoder and a queue instead of memory banks (D.4)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.encoders import Encoder, EncoderConfig
from manyview.methods.base import ViewBatch
from manyview.methods.cmc import CMC, directions, split_encoder
from manyview.methods.queued import QueueConfig, Queued
from manyview.objectives import info_nce, mutual_information_bound, similarity

__all__ = ["CMCMoCo", "CMCMoCoConfig"]


@dataclass(frozen=True)
class CMCMoCoConfig(QueueConfig):
    """CMC with a momentum encoder and a queue (Tian et al., ECCV 2020, D.4)."""

    views: str = "lab"
    """Colour space whose two views are contrasted: lab ({L, ab}), ydbdr ({Y, DbDr}), yiq, yuv, hsv, hed, rgb …"""
    temperature: float = 0.07
    """τ of the softmax."""


class CMCMoCo(Queued):
    name = "cmc-moco"
    Config = CMCMoCoConfig
    paper = CMC.paper
    config: CMCMoCoConfig

    @classmethod
    def encoder_config(cls, config: CMCMoCoConfig, encoder: EncoderConfig) -> EncoderConfig:
        return split_encoder(config.views, encoder)

    def __init__(self, config: CMCMoCoConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        self.names, self.directions = directions(config.views)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        q = self.embed(batch.views[0])  # (N, V·D), the views side by side, each of length 1/√V
        k = self.encode_keys(batch.views[1:], batch)  # (N, 1, V·D) of another crop
        losses, means = [], []
        for anchor, other in self.directions:
            query = self.in_place_of(q, anchor, other)
            positives = similarity(query, k)
            negatives = self.queue.similarity(query, batch.index)
            losses.append(info_nce(positives, negatives, temperature=self.config.temperature))
            means.append(positives.detach().mean())
        self.fresh.append((k[:, 0], batch.index))
        loss = torch.stack(losses).sum()
        bound = mutual_information_bound(loss.detach() / len(losses), self.config.queue_size)
        return {"loss": loss, "positive": torch.stack(means).mean(), "information": bound}

    def in_place_of(self, q: Tensor, anchor: str, other: str) -> Tensor:
        """The anchor's view where keys have the other one, and nothing elsewhere: its products with whole keys are the
        cosines of the two views."""
        view = q.chunk(len(self.names), 1)[self.names.index(anchor)] * len(self.names)
        return torch.cat([view if name == other else torch.zeros_like(view) for name in self.names], 1)
