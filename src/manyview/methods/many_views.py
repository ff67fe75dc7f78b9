"""SimCLR's frame for any number of views: each is a query in turn, the other samples of the batch its negatives."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import torch
from torch import Tensor

from manyview import distributed
from manyview.bounds import Several
from manyview.methods.base import MOCO_V2, Method, SmallSet, ViewBatch
from manyview.negatives import InBatch
from manyview.objectives import similarity


@dataclass(frozen=True)
class ManyViewsConfig:
    views: Annotated[int, Several] = 2
    """Views of each sample, K + 1: each is a query in turn, the K others are its positives."""


class Pool(TypedDict):
    """The embeddings of all ranks, among which those here start at `offset`, and whose they are."""

    pool: Tensor  # (V, P, D)
    offset: int
    owner: Tensor  # (P,): rows of the same owner are never each other's negatives


class ManyViews(Method):
    """A method of this frame defines `loss`."""

    paper = MOCO_V2
    config: Any

    @classmethod
    def view_count(cls, config: ManyViewsConfig) -> int:
        return config.views

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float]:
        return {}

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        views = self.embed(batch.images.flatten(0, 1)).unflatten(0, (len(batch.images), -1))  # (V, N, D), one pass
        pool, owner = distributed.gather(views, dim=1), distributed.gather(self.owners(batch.index))
        loss = self.loss(views, Pool(pool=pool, offset=distributed.rank() * views.shape[1], owner=owner))
        positive = (views * (views.sum(0) - views)).sum(2).detach().mean() / (len(views) - 1)
        return {"loss": loss, "positive": positive}

    @abstractmethod
    def loss(self, views: Tensor, pool: Pool) -> Tensor:
        """Of the embeddings `views` (V, N, D) among those of all ranks."""


def contrasts(
    views: Tensor, scope: Literal["same", "other", "all"], *, pool: Tensor, owner: Tensor, offset: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each view as the query: its positives (N, V-1), and its negatives (N, K) in the batch."""
    negatives = InBatch(scope)
    for view, query in enumerate(views):
        positives = similarity(query, others(views, view).transpose(0, 1))
        yield positives, negatives.similarity(query, pool, view=view, offset=offset, owner=owner)


def of_all_ranks(pool: Pool) -> Pool:
    """For a loss that is no mean over queries: each rank takes those of all."""
    return {**pool, "offset": 0}


def others(views: Tensor, view: int) -> Tensor:
    """All of (V, …) but one."""
    return torch.cat([views[:view], views[view + 1 :]])
