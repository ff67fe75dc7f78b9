"""The frame of CACR's Algorithm 3: every view is a query and a key, negatives come from a queue and from the batch."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from manyview import distributed
from manyview.bounds import Several
from manyview.methods.base import MOCO_V2, Chance, QueueConfig, Queued, ViewBatch
from manyview.methods.many_views import others
from manyview.negatives import InBatch
from manyview.objectives import similarity


@dataclass(frozen=True)
class QueuedViewsConfig(QueueConfig):
    views: Annotated[int, Several] = 2
    """Views of each sample, K + 1: each is a query in turn, the keys of the K others are its positives."""
    with_intra_batch: bool = True
    """The other queries of the batch, in the same view, are negatives too. Unlike keys they carry a gradient."""


class QueuedViews(Queued):
    """A method of this frame defines `loss`."""

    paper = MOCO_V2
    config: QueuedViewsConfig
    of_all_ranks = False  # whether the loss is no mean over queries: then each rank evaluates it for those of all

    @classmethod
    def view_count(cls, config: QueuedViewsConfig) -> int:
        return config.views

    @classmethod
    def chance(cls, config: Any, batch: int) -> Chance | None:
        return None  # unless the loss of a method depends on the number of its negatives alone

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        queries = self.embed(batch.images.flatten(0, 1)).unflatten(0, (len(batch.images), -1))  # (V, N, D), one pass
        keys, index = self.encode_keys(batch.images, batch), batch.index  # (N, V, D), no gradient
        self.fresh.append((keys[:, -1], index))
        pool, offset = distributed.gather(queries, dim=1), distributed.rank() * len(index)
        owner = distributed.gather(self.owners(index))
        if self.of_all_ranks:
            queries, offset = pool, 0
            keys, index = distributed.gather(keys), distributed.gather(index)
        losses, means = [], []
        for view, query in enumerate(queries):
            positives = similarity(query, others(keys.transpose(0, 1), view).transpose(0, 1))
            negatives = self.queue.similarity(query, index)
            if self.config.with_intra_batch:
                near = InBatch("same").similarity(query, pool, view=view, offset=offset, owner=owner)
                negatives = torch.cat([negatives, near], 1)
            losses.append(self.loss(positives, negatives))
            means.append(positives.detach().mean())
        return {"loss": torch.stack(losses).mean(), "positive": torch.stack(means).mean()}

    @abstractmethod
    def loss(self, positives: Tensor, negatives: Tensor) -> Tensor:
        """Of the similarities (N, K) and (N, negatives) of one view's queries."""
