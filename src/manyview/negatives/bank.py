"""Negatives from everywhere in the set: one stale embedding of every sample."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import counter, distributed
from manyview.negatives.drawn import drawn_similarity
from manyview.objectives import similarity
from manyview.precision import at_least_float32

_TAG = 0x62616E6B  # "bank": keeps these draws apart from everybody else's


class MemoryBank(nn.Module):
    """One unit embedding of one view for each of `n` samples, random at first; every rank holds the same ones.

    CMC (§3.4) has a bank for each view. An anchor of one view meets the other view in its bank only, with its positive
    (`positives`) as with `draw` negatives (`similarity`), so the gradient goes to the anchor's encoder alone; the other
    encoder learns from the other direction. `momentum` is the share of an entry that stays in an update. Where samples
    have groups, drawn entries of the anchor's group are excluded.
    """

    entries: Tensor
    groups: Tensor | None

    def __init__(self, n: int, dim: int, *, momentum: float, draw: int) -> None:
        super().__init__()
        if n < 2:
            raise ValueError(f"a memory bank needs another sample to draw: at least 2 samples, not {n}")
        if draw < 1:
            raise ValueError(f"a memory bank draws at least one negative per query, not {draw}")
        if not 0 <= momentum < 1:
            raise ValueError(f"the momentum of a memory bank is a share in [0, 1), not {momentum}")
        self.momentum, self.draw = momentum, draw
        self.register_buffer("entries", F.normalize(torch.randn(n, dim)))
        self.know_groups(None)

    def know_groups(self, groups: Tensor | None) -> None:
        """To which group each of the n samples belongs (n,)."""
        self.register_buffer("groups", groups, persistent=False)  # the data tells it anew

    def positives(self, query: Tensor, index: Tensor) -> Tensor:
        """Scores of `query` (N, D) against the entries of its own samples `index` (N,): (N, 1)."""
        self._check(index)
        return similarity(query, self.entries[index].unsqueeze(1))

    def similarity(
        self, query: Tensor, index: Tensor, *, seed: int, step: int, direction: int = 0, there: Tensor | None = None
    ) -> Tensor:
        """Scores of `query` (N, D), whose samples are `index` (N,), against the entries drawn for it: (N, draw). Those
        of samples that are not `there` (n,), since they lack the view, are excluded."""
        self._check(index)

        groups = self.groups

        def draw(some: Tensor) -> Tensor:
            return self.drawn(some, seed=seed, step=step, direction=direction)

        def excluded(some: Tensor, drawn: Tensor) -> Tensor | None:
            lacking = None if there is None else ~there[drawn]
            if groups is None:
                return lacking
            alike = groups[drawn] == groups[some, None]
            return alike if lacking is None else alike | lacking

        with torch.autocast(query.device.type, enabled=False):
            return drawn_similarity(at_least_float32(query), self.entries, index, draw, self.draw, excluded)

    def drawn(self, index: Tensor, *, seed: int, step: int, direction: int = 0) -> Tensor:
        """The entries that the samples `index` (N,) meet in this step: (N, draw), uniform over all other samples, with
        replacement. `direction` tells the draws of several banks, and of several views that meet one bank, apart."""
        number = torch.arange(self.draw, device=index.device)
        # One of n - 1 numbers, and those from the own one on move up: as uniform without a second try.
        other = counter.bits(seed, _TAG, direction, step, index[:, None], number) % (len(self.entries) - 1)
        return other.add_(other >= index[:, None])

    @torch.no_grad()
    def push(self, keys: Tensor, index: Tensor, *, present: Tensor | None = None) -> None:
        """Moves the entries of the samples `index` (N,) towards `keys` (N, D), those that are `present` (N,).

        Of several keys of one sample the last in the order of the ranks counts.
        """
        keys, index = distributed.gather(keys), distributed.gather(index)
        if present is not None:
            present = distributed.gather(present)
            keys, index = keys[present], index[present]
        self._check(index)
        samples, place = index.unique(return_inverse=True)
        # Not left to the assignment, whose winner among equals depends on the device.
        last = torch.zeros_like(samples).scatter_reduce_(
            0, place, torch.arange(len(index), device=index.device), "amax"
        )
        moved = self.momentum * self.entries[samples] + (1 - self.momentum) * keys[last].to(self.entries.dtype)
        self.entries[samples] = F.normalize(moved)

    def _check(self, index: Tensor) -> None:
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(self.entries):
            raise ValueError(
                f"sample numbers of a memory bank of {len(self.entries)} are 0 to {len(self.entries) - 1}, "
                f"not {int(index.min())} to {int(index.max())}"
            )
