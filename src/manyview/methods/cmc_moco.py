"""CMC with a momentum encoder and a queue instead of memory banks (D.4)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from manyview.methods.base import Chance, ViewBatch
from manyview.methods.cmc import COMBINED
from manyview.methods.jigsaw import Branched, BranchedConfig
from manyview.methods.queued import QueueConfig, Queued
from manyview.methods.view_graph import Seen, ways
from manyview.objectives import info_nce, similarity
from manyview.objectives.multiview import Scores

__all__ = ["CMCMoCo", "CMCMoCoConfig"]


@dataclass(frozen=True)
class CMCMoCoConfig(QueueConfig, BranchedConfig):
    """CMC with a momentum encoder and a queue (Tian et al., ECCV 2020, D.4)."""

    temperature: float = 0.07
    """τ of the softmax."""


class CMCMoCo(Queued, Branched):
    name = "cmc-moco"
    title = "CMC (MoCo)"
    Config = CMCMoCoConfig
    paper = COMBINED
    config: CMCMoCoConfig

    @classmethod
    def view_count(cls, config: CMCMoCoConfig) -> int:
        return 3 if config.jigsaw else 2  # crops: of queries, of keys, of jigsaws

    @classmethod
    def chance(cls, config: CMCMoCoConfig, batch: int) -> Chance:
        return Chance(config.queue_size + 1, terms=ways(config))

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        branches = self.branches(batch)
        k = self.encode_keys(batch.views[1:2], batch)  # (N, 1, V·D)
        self.fresh.append((k[:, 0], batch.index))
        contrast = partial(info_nce, temperature=self.config.temperature)
        seen = Seen()
        losses = [
            share * self.along_graph(self.apart(q), self.scores(q, k, batch), contrast, batch.index, seen)
            for share, q in branches
        ]
        return {"loss": torch.stack(losses).sum(), **seen.metrics()}

    def scores(self, q: Tensor, k: Tensor, batch: ViewBatch) -> Scores:
        """Of anchors against the keys of the view that they meet."""

        width = q.shape[1] // len(self.names)
        columns = {name: slice(i * width, (i + 1) * width) for i, name in enumerate(self.names)}

        def against(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            query, there = q[:, columns[anchor]] * len(self.names), self.presence.there(other)  # views are 1/√V long
            positives = similarity(query, k[:, :, columns[other]])
            negatives = self.queue.similarity(query, batch.index, columns=columns[other])
            if there is not None:
                owner = self.queue.owner  # -1 where a slot was never filled: its random key stays
                negatives = negatives.masked_fill(~there[owner.clamp_min(0)] & (owner >= 0), -torch.inf)
            return positives, negatives

        return against
