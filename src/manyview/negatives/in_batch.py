"""Negatives from the batch itself."""

from typing import Literal

import torch
from torch import Tensor, nn

from manyview.objectives import similarity


class InBatch(nn.Module):
    """The other samples of the batch: in the query's view, in the other views, or in all of them."""

    def __init__(self, scope: Literal["same", "other", "all"] = "all") -> None:
        super().__init__()
        if scope not in ("same", "other", "all"):
            raise ValueError(f"scope is 'same', 'other' or 'all', not {scope!r}")
        self.scope = scope

    def similarity(
        self, query: Tensor, views: Tensor, *, view: int, offset: int = 0, owner: Tensor | None = None
    ) -> Tensor:
        """`query` (N, D) is view number `view` of `views` (V, P, D); its sample's own views are masked.

        With several ranks `views` are those of all of them, gathered once for all queries, and `offset` is where the N
        samples of the query start among the P. Rows with the same `owner` (P,), a sample or a group of samples, are
        masked for each other; without it every row is a sample of its own.
        """
        chosen = {
            "same": [view],
            "other": [v for v in range(len(views)) if v != view],
            "all": list(range(len(views))),
        }[self.scope]
        scores = similarity(query, views[chosen].flatten(0, 1))
        # Writing in place is safe: the product's gradient does not read its result.
        by_view = scores.view(len(query), len(chosen), -1)
        if owner is None:
            by_view.diagonal(offset, 0, 2).fill_(-torch.inf)
        else:
            by_view.masked_fill_((owner[offset : offset + len(query), None] == owner).unsqueeze(1), -torch.inf)
        return scores

    def push(self, keys: Tensor) -> None:
        """Nothing to keep: the batch is gone with the step."""
