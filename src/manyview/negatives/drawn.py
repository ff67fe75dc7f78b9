"""Similarities of queries with rows drawn for each of them, without ever holding those rows: (N, m, D) at m = 16,384
would be a hundred times the (N, m) scores.

Draws are made anew in the backward pass: kept, they would take twice the room of the scores.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Draw = Callable[[Tensor], Tensor]
Excluded = Callable[[Tensor, Tensor], Tensor | None]

# To score all rows and pick the drawn ones costs more products but copies no row: it wins up to so many rows per draw
# (measured on one core at D = 128). Less long in the backward pass, whose other way copies none either.
_ROWS_PER_DRAW_FORWARD = 16
_ROWS_PER_DRAW_BACKWARD = 6
_DRAWS_AT_ONCE = 2**17
_SCORES_AT_ONCE = 2**20


def drawn_similarity(
    query: Tensor, rows: Tensor, index: Tensor, draw: Draw, count: int, excluded: Excluded = lambda index, drawn: None
) -> Tensor:
    """Dot products of `query` (N, D) with those of `rows` (n, D) that `draw(index)` (N, count) names: (N, count); -inf
    where `excluded(index, drawn)` (N, count) says so.

    `draw` works on any part of `index` (N,) and gives it the same numbers whenever it is asked. The gradient goes to
    the query alone.
    """
    return _DrawnSimilarity.apply(query, rows, index, draw, count, excluded)  # type: ignore[no-any-return]


class _DrawnSimilarity(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, rows: Tensor, index: Tensor, draw: Draw, count: int, excluded: Excluded
    ) -> Tensor:
        ctx.save_for_backward(rows, index)
        ctx.draw, ctx.count, ctx.excluded = draw, count, excluded
        scores = query.new_empty(len(query), count)
        few = len(rows) <= _ROWS_PER_DRAW_FORWARD * count
        for part in _parts(len(query), count, len(rows) if few else 1):
            drawn, target = draw(index[part]), scores[part]
            if few:
                torch.gather(query[part] @ rows.T, 1, drawn, out=target)
            else:
                _gather_and_multiply(query[part], rows, drawn, out=target)
            if (mask := excluded(index[part], drawn)) is not None:
                target.masked_fill_(mask, -torch.inf)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        rows, index = ctx.saved_tensors
        result = gradient.new_empty(len(gradient), rows.shape[1])
        few = len(rows) <= _ROWS_PER_DRAW_BACKWARD * ctx.count
        for part in _parts(len(gradient), ctx.count, len(rows) if few else 1):
            drawn, weights = ctx.draw(index[part]), gradient[part].contiguous()
            if (mask := ctx.excluded(index[part], drawn)) is not None:
                weights = weights.masked_fill(mask, 0.0)
            if few:
                summed = weights.new_zeros(len(drawn), len(rows)).scatter_add_(1, drawn, weights)
                torch.matmul(summed, rows, out=result[part])
            else:
                result[part] = F.embedding_bag(drawn, rows, per_sample_weights=weights, mode="sum")
        return result, None, None, None, None, None


def _gather_and_multiply(query: Tensor, rows: Tensor, drawn: Tensor, *, out: Tensor) -> None:
    """One query after the other, so few rows at a time that they are still in the cache when they are multiplied."""
    length = max(1, (2**18 if rows.device.type == "cpu" else 2**21) // rows.shape[1])
    room = rows.new_empty(min(length, drawn.shape[1]), rows.shape[1])
    for q, names, target in zip(query, drawn, out, strict=True):
        for some, scores in zip(names.split(length), target.split(length), strict=True):
            chosen = torch.index_select(rows, 0, some, out=room[: len(some)])
            torch.mv(chosen, q, out=scores)


def _parts(n: int, draws: int, scores: int) -> Iterator[slice]:
    """So many of n queries at once that their draws and, of each with all rows, their scores stay small."""
    length = max(1, min(_DRAWS_AT_ONCE // draws, _SCORES_AT_ONCE // scores))
    return (slice(start, start + length) for start in range(0, n, length))
