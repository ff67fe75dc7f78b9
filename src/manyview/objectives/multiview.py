"""CMC for any number of views, each with a name: two-view losses along the edges of a graph; views may be missing."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from manyview.objectives.rows import similarity

Graph = Literal["core", "full"]
Direction = tuple[str, str]  # the anchor's view, and the view that it meets
Contrast = Callable[..., Tensor]
Scores = Callable[[str, str], tuple[Tensor, Tensor]]


def multiview(
    views: Mapping[str, Tensor],
    scores: Scores | None = None,
    *,
    contrast: Contrast | Mapping[Direction, Contrast],
    graph: Graph = "full",
    core: str | None = None,
    present: Mapping[str, Tensor] | None = None,
    over_ranks: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""CMC's loss of several views, Eq. 7 and 8 with Eq. 4: over the pairs of the graph the sum of

    $$\mathcal{L}(V_a,V_b)=\mathcal{L}_{contrast}^{V_a,V_b}+\mathcal{L}_{contrast}^{V_b,V_a}$$

    `views` are unit embeddings (N, D) by name. `scores(a, b)` gives positives (N, M) and negatives (N, K) of anchors in
    view a, found in view b; without it they are those `within_batch`. `contrast` is an objective of the two, or one
    for each of the `directions`, called with `reduction="none"`.

    `present` (N,) tells by name which samples have that view. A term is the mean over the samples that have both its
    views, 0 if there are none; a sample with one view is an anchor in no term. With several ranks, which may see
    unequal numbers of them, `over_ranks` makes the mean over the ranks of such numbers, so that the mean of their
    losses is that of the whole batch.
    """
    both_ways, n = directions(views, graph=graph, core=core), len(next(iter(views.values())))
    scores = scores or within_batch(views, present=present)
    rows = [slice(None) if present is None else present[a] & present[b] for a, b in both_ways]
    counts = torch.stack([torch.as_tensor(n) if isinstance(both, slice) else both.sum() for both in rows]).double()
    counts = over_ranks(counts) if over_ranks is not None and present is not None else counts
    losses = []
    for direction, both, count in zip(both_ways, rows, counts.where(counts > 0, 1.0), strict=True):
        positives, negatives = scores(*direction)
        objective = contrast[direction] if isinstance(contrast, Mapping) else contrast
        terms = objective(positives[both], negatives[both], reduction="none")
        losses.append(terms.sum() / count.to(terms))
    return torch.stack(losses).sum()


def directions(names: Iterable[str], *, graph: Graph = "full", core: str | None = None) -> list[Direction]:
    """The pairs of views that are contrasted, each both ways. A single view meets itself, as it was seen before:
    instance discrimination."""
    names = list(names)
    if len(names) == 1:
        return [(names[0], names[0])]
    return [direction for a, b in view_pairs(names, graph=graph, core=core) for direction in ((a, b), (b, a))]


def view_pairs(names: Iterable[str], *, graph: Graph = "full", core: str | None = None) -> list[tuple[str, str]]:
    """The pairs of views that are contrasted: the core view (the first, unless named) with every other one (Eq. 7), or
    all of them (Eq. 8)."""
    names = list(names)
    if len(names) < 2:
        raise ValueError(f"views are contrasted in pairs: at least two, not {names}")
    if graph == "full":
        return list(itertools.combinations(names, 2))
    if graph != "core":
        raise ValueError(f"graph is 'core' or 'full', not {graph!r}")
    core = names[0] if core is None else core
    if core not in names:
        raise ValueError(f"the core is one of the views {names}, not {core!r}")
    return [(core, name) for name in names if name != core]


def within_batch(
    views: Mapping[str, Tensor],
    *,
    present: Mapping[str, Tensor] | None = None,
    pool: Mapping[str, Tensor] | None = None,
    offset: int = 0,
) -> Scores:
    """Scores of Eq. 2 with the other samples of the batch as negatives: those that have the other view.

    With several ranks `pool` (P, D) are the views of all of them, to which `present` (P,) belongs, and `offset` is
    where the N samples here start among the P.
    """
    pool = views if pool is None else pool
    if len(views) == 1:
        raise ValueError(f"within a batch a view cannot be told from itself: at least two views, not {list(views)}")

    def scores(anchor: str, other: str) -> tuple[Tensor, Tensor]:
        query, others = views[anchor], pool[other]
        if present is not None:
            # Anything may stand in for a missing view, and 0 · NaN would enter the gradient of the others.
            query = query.masked_fill(~present[anchor][offset : offset + len(query), None], 0.0)
            others = others.masked_fill(~present[other][:, None], 0.0)
        matrix = similarity(query, others)
        positives = matrix.diagonal(offset).clone()
        # Writing in place is safe: the product's gradient does not read its result.
        matrix.diagonal(offset).fill_(-torch.inf)
        if present is not None:
            matrix.masked_fill_(~present[other], -torch.inf)
        return positives.unsqueeze(1), matrix

    return scores


def mutual_information_bound(loss: Tensor, k: int | Tensor) -> Tensor:
    r"""What a loss with k negatives says about its two views, in nats, Eq. 6:

    $$I(z_a;z_b)\ge\log k-\mathcal{L}_{contrast}$$

    `loss` is that of one direction; of several, their mean gives the mean bound. Losses (N,) of single samples may each
    have a k of their own.
    """
    return (k.to(loss).log() if isinstance(k, Tensor) else math.log(k)) - loss
