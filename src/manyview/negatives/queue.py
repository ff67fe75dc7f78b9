"""Negatives from the batches before."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import distributed
from manyview.objectives import similarity


class Queue(nn.Module):
    """The last `size` keys of all ranks, oldest overwritten first; every rank holds the same ones.

    `start="random"` fills it with random unit vectors as MoCo does; `"empty"` masks what was not written yet.
    `mask_own` masks the keys that the queried sample itself left behind in an earlier epoch. Where samples have groups,
    keys of the query's group are always masked.
    """

    groups: Tensor | None
    keys: Tensor
    owner: Tensor
    pushed: Tensor

    def __init__(
        self, size: int, dim: int, *, start: Literal["random", "empty"] = "random", mask_own: bool = False
    ) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a queue holds at least one key, not {size}")
        self.start, self.mask_own = start, mask_own
        self.register_buffer("keys", F.normalize(torch.randn(size, dim)))
        self.register_buffer("owner", torch.full((size,), -1))  # -1: nobody's
        self.register_buffer("pushed", torch.zeros((), dtype=torch.int64))
        self.know_groups(None)

    def know_groups(self, groups: Tensor | None) -> None:
        """To which group each of the n samples belongs (n,)."""
        self.register_buffer("groups", groups, persistent=False)  # the data tells it anew

    def similarity(self, query: Tensor, index: Tensor | None = None) -> Tensor:
        """Scores of `query` (N, D), whose sample numbers are `index` (N,), against the queue: (N, size)."""
        scores = similarity(query, self.keys)
        if self.start == "empty":
            empty = torch.arange(len(self.keys), device=scores.device) >= self.pushed  # a number on the host would wait
            scores.masked_fill_(empty, -torch.inf)
        if self.mask_own or self.groups is not None:
            if index is None:
                raise ValueError("mask_own and groups need the sample numbers of the queries")
            whose, owner = index, self.owner
            if self.groups is not None:
                whose, owner = self.groups[index], self.groups[owner.clamp_min(0)]
            scores.masked_fill_((whose[:, None] == owner) & (self.owner >= 0), -torch.inf)
        return scores

    @torch.no_grad()
    def push(self, keys: Tensor, index: Tensor | None = None) -> None:
        """Overwrites the oldest slots by `keys` (N, D) of the samples `index` (N,), for any N."""
        if index is None:
            index = torch.full((len(keys),), -1, device=keys.device)
        keys, index = distributed.gather(keys), distributed.gather(index)
        size, n = len(self.keys), len(keys)
        slots = (self.pushed + torch.arange(n, device=keys.device)) % size
        last = slice(max(0, n - size), None)  # of more keys than slots the newest stay
        self.keys[slots[last]] = keys[last].to(self.keys.dtype)
        self.owner[slots[last]] = index[last]
        self.pushed += n
