"""The frame of CMC with a momentum encoder and a queue: an anchor of one view meets the keys of the other (D.4)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from manyview.bounds import Positive
from manyview.methods.base import Chance, CMCSetup, QueueConfig, Queued, Setup, ViewBatch
from manyview.methods.jigsaw import Branched, BranchedConfig
from manyview.methods.view_graph import CMC_COMBINED, Seen, ways
from manyview.objectives import info_nce, similarity
from manyview.objectives.multiview import Scores

__all__ = ["QueuedGraph", "QueuedGraphConfig"]


@dataclass(frozen=True)
class QueuedGraphConfig(QueueConfig, BranchedConfig):
    temperature: Annotated[float, Positive] = 0.07
    """τ of the softmax."""


class QueuedGraph(Queued, Branched):
    """A member of the family says whether jigsaws of the views meet the keys too."""

    paper = CMC_COMBINED
    config: QueuedGraphConfig

    @classmethod
    def view_count(cls, config: QueuedGraphConfig) -> int:
        return 3 if config.jigsaw else 2  # crops: of queries, of keys, of jigsaws

    @classmethod
    def chance(cls, config: QueuedGraphConfig, batch: int) -> Chance:
        return Chance(config.queue_size + 1, terms=ways(config))

    @classmethod
    def in_cmc_setup(cls, setup: CMCSetup) -> Setup:
        return replace(super().in_cmc_setup(setup), method={"temperature": 0.1} if setup == "paper-stl10" else {})

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
