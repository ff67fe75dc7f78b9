"""The frame of CMC with a momentum encoder and a queue: an anchor of one view meets the keys of the other (D.4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn

from manyview.bounds import Positive
from manyview.methods.base import Chance, CMCSetup, QueueConfig, Queued, Setup, ViewBatch
from manyview.methods.jigsaw import Branched, BranchedConfig
from manyview.methods.view_graph import CMC_COMBINED, Seen, ways
from manyview.objectives import info_nce, similarity
from manyview.objectives.multiview import Scores


@dataclass(frozen=True)
class QueuedGraphConfig(QueueConfig, BranchedConfig):
    temperature: Annotated[float, Positive] = 0.07
    """τ of the softmax."""


class QueuedGraph(Queued, Branched):
    """A method of this frame is a configuration: whether jigsaws of the views are contrasted with the keys too."""

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

    def new_queue(self) -> nn.ModuleDict:
        """One for each view."""
        return nn.ModuleDict({name: super(QueuedGraph, self).new_queue() for name in self.names})

    def enqueue(self, keys: Sequence[Mapping[str, Tensor]], index: Tensor) -> None:
        for name, queue in self.queue.items():
            queue.push(torch.cat([each[name] for each in keys]), index)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        branches = self.branches(batch)
        k = self.encode_keys({name: view[1:2] for name, view in batch.views.items()}, batch)  # (N, 1, D) by view
        self.fresh.append(({name: keys[:, 0] for name, keys in k.items()}, batch.index))
        contrast = partial(info_nce, temperature=self.config.temperature)
        seen = Seen()
        losses = [
            share * self.along_graph(q, self.scores(q, k, batch), contrast, batch.index, seen) for share, q in branches
        ]
        return {"loss": torch.stack(losses).sum(), **seen.metrics()}

    def scores(self, q: Mapping[str, Tensor], k: Mapping[str, Tensor], batch: ViewBatch) -> Scores:
        """Of anchors against the keys of the view that they meet."""

        def against(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            query, queue, there = q[anchor], self.queue[other], self.presence.there(other)
            positives, negatives = similarity(query, k[other]), queue.similarity(query, batch.index)
            if there is not None:
                owner = queue.owner  # -1 where a slot was never filled: its random key stays
                negatives = negatives.masked_fill(~there[owner.clamp_min(0)] & (owner >= 0), -torch.inf)
            return positives, negatives

        return against
