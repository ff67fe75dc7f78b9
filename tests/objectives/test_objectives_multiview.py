"""CMC's graphs of views against naive float64 loops, with all views and with some missing."""

import math
from functools import partial

import pytest
import torch
from drawn import draw_views
from torch import Tensor

from manyview.objectives import (
    cmc_full_graph,
    info_nce,
    multiview,
    mutual_information_bound,
    nce,
    view_pairs,
    within_batch,
)

TAU = 0.2
NAMES = ("L", "ab", "depth", "normals")
CONTRAST = partial(info_nce, temperature=TAU)
EDGES = {"full": [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], "core": [(2, 0), (2, 1), (2, 3)]}


def named(views: Tensor) -> dict[str, Tensor]:
    return dict(zip(NAMES, views, strict=False))


def naive(views: Tensor, edges: list[tuple[int, int]], there: list[list[bool]]) -> float:
    """Eq. 2-4 along the edges; a term is the mean over the samples that have both views."""
    total = 0.0
    for edge in edges:
        for a, b in (edge, edge[::-1]):
            terms = []
            for i in range(views.shape[1]):
                if there[a][i] and there[b][i]:
                    h = [
                        math.exp(float(views[a, i] @ views[b, j]) / TAU) if there[b][j] else 0.0
                        for j in range(views.shape[1])
                    ]
                    terms.append(-math.log(h[i] / sum(h)))
            if terms:
                total += sum(terms) / len(terms)
    return total


@pytest.mark.parametrize("graph", ["core", "full"])
def test_it_equals_the_loop(graph: str) -> None:
    views = draw_views(4, 6)
    got = multiview(named(views), contrast=CONTRAST, graph=graph, core="depth")  # type: ignore[arg-type]
    assert float(got) == pytest.approx(naive(views, EDGES[graph], [[True] * 6] * 4), abs=1e-10)


THERE = [
    [True, True, False, True, True, False],
    [True, False, False, True, False, False],
    [False, True, True, True, False, False],
    [False, False, True, False, False, True],  # the last sample has one view, and views 1 and 3 never meet
]


@pytest.mark.parametrize("graph", ["core", "full"])
def test_with_missing_views_it_equals_the_loop_over_what_is_there(graph: str) -> None:
    views = draw_views(4, 6)
    present = named(torch.tensor(THERE))
    expected = naive(views, EDGES[graph], THERE)
    views[~torch.tensor(THERE)] = torch.nan  # whatever stands in for a missing view, nobody looks at it
    views.requires_grad_()
    got = multiview(named(views), contrast=CONTRAST, graph=graph, core="depth", present=present)  # type: ignore[arg-type]
    assert float(got.detach()) == pytest.approx(expected, abs=1e-10)
    got.backward()
    assert views.grad is not None
    assert views.grad.isfinite().all()
    assert (views.grad[~torch.tensor(THERE)] == 0).all()


def test_nothing_missing_changes_nothing() -> None:
    views = named(draw_views(3, 6))
    everything = {name: torch.ones(6, dtype=torch.bool) for name in views}
    assert torch.equal(multiview(views, contrast=CONTRAST), multiview(views, contrast=CONTRAST, present=everything))


def test_if_no_two_views_meet_loss_and_gradient_are_zero() -> None:
    views = draw_views(2, 4).requires_grad_()
    present = named(torch.tensor([[True, False, True, False], [False, True, False, True]]))
    loss = multiview(named(views), contrast=CONTRAST, present=present)
    loss.backward()
    assert float(loss.detach()) == 0
    assert views.grad is not None
    assert (views.grad == 0).all()


def test_the_full_graph_is_the_sum_whose_mean_cmc_of_augmented_views_takes() -> None:
    views = draw_views(4, 6)
    assert float(multiview(named(views), contrast=CONTRAST)) == pytest.approx(
        12 * float(cmc_full_graph(views, temperature=TAU)), abs=1e-10
    )


def test_with_two_views_both_graphs_are_the_two_view_loss() -> None:
    views = named(draw_views(2, 6))
    core = multiview(views, contrast=CONTRAST, graph="core")
    assert torch.allclose(core, multiview(views, contrast=CONTRAST), atol=1e-12)
    scores = within_batch(views)
    expected = sum(info_nce(*scores(a, b), temperature=TAU) for a, b in (("L", "ab"), ("ab", "L")))
    assert torch.allclose(core, torch.as_tensor(expected), atol=1e-12)


def test_scores_may_come_from_elsewhere_and_any_row_objective_reads_them() -> None:
    generator = torch.Generator().manual_seed(0)
    table = {
        (a, b): torch.rand(2, 5, 7, dtype=torch.float64, generator=generator) for a in NAMES[:3] for b in NAMES[:3]
    }
    asked = []

    def scores(anchor: str, other: str) -> tuple[Tensor, Tensor]:
        asked.append((anchor, other))
        positives, negatives = table[anchor, other]
        return positives[:, :1], negatives

    rule = partial(nce, temperature=TAU, n=30, z=50.0)
    present = named(torch.tensor([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool())
    got = multiview(named(draw_views(3, 5)), scores, contrast=rule, graph="core", present=present)
    assert asked == [("L", "ab"), ("ab", "L"), ("L", "depth"), ("depth", "L")]
    expected = 0.0
    for a, b in asked:
        rows = [i for i in range(5) if present[a][i] and present[b][i]]
        expected += sum(float(rule(table[a, b][0, i : i + 1, :1], table[a, b][1, i : i + 1])) for i in rows) / len(rows)
    assert float(got) == pytest.approx(expected, abs=1e-10)


def test_gradients_pass_gradcheck_with_and_without_missing_views() -> None:
    views = draw_views(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: multiview(named(v), contrast=CONTRAST), views)
    present = named(torch.tensor(THERE)[:3, :4])
    assert torch.autograd.gradcheck(lambda v: multiview(named(v), contrast=CONTRAST, present=present), views)


def test_the_mean_over_unequal_ranks_is_the_loss_of_the_whole_batch() -> None:
    """Two halves of a batch, of which one sees more pairs than the other."""
    views, there = draw_views(3, 6), torch.tensor(THERE[:3])
    whole = multiview(named(views), contrast=CONTRAST, present=named(there))
    halves = [slice(0, 3), slice(3, 6)]
    counts = [torch.tensor([(there[a] & there[b])[half].sum() for a, b in EDGES["full"] if b < 3]) for half in halves]
    counts = [both_ways.repeat_interleave(2) for both_ways in counts]
    mean_count = torch.stack(counts).double().mean(0)

    def over_ranks(count: Tensor) -> Tensor:
        assert any(torch.equal(count.long(), each) for each in counts)
        return mean_count

    losses = [
        multiview(
            named(views[:, half]),
            within_batch(named(views[:, half]), pool=named(views), present=named(there), offset=half.start),
            contrast=CONTRAST,
            present=named(there[:, half]),
            over_ranks=over_ranks,
        )
        for half in halves
    ]
    assert torch.allclose(torch.stack(losses).mean(), whole, atol=1e-12)


def test_the_pairs_of_the_graphs() -> None:
    assert view_pairs("abc") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert view_pairs("abc", graph="core") == [("a", "b"), ("a", "c")]
    assert view_pairs("abc", graph="core", core="b") == [("b", "a"), ("b", "c")]
    with pytest.raises(ValueError, match="at least two"):
        view_pairs(["L"])
    with pytest.raises(ValueError, match="'depth'"):
        view_pairs("abc", graph="core", core="depth")
    with pytest.raises(ValueError, match="'ring'"):
        view_pairs("abc", graph="ring")  # type: ignore[arg-type]


def test_equal_scores_tell_nothing_about_the_views() -> None:
    """log k - log(k + 1) → 0 from below; a perfect loss of 0 claims log k."""
    k = 127
    loss = info_nce(torch.zeros(3, 1), torch.zeros(3, k), temperature=TAU)
    assert float(mutual_information_bound(loss, k)) == pytest.approx(math.log(k / (k + 1)), abs=1e-6)
    assert float(mutual_information_bound(torch.zeros(()), k)) == pytest.approx(math.log(k))


def test_the_bound_holds_for_gaussians_whose_information_is_known() -> None:
    """With the optimal critic, the log of the density ratio (Eq. 5), the bound lies below I = -½ log(1 - ρ²)."""
    n, rho = 2000, 0.8
    x, noise = torch.randn(2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = rho * x + math.sqrt(1 - rho**2) * noise
    information = -0.5 * math.log(1 - rho**2)
    residual = (y - rho * x.unsqueeze(1)) ** 2 / (1 - rho**2)
    ratio = information + 0.5 * (y**2 - residual)
    positives = ratio.diagonal().unsqueeze(1).clone()
    ratio.fill_diagonal_(-torch.inf)
    bound = float(mutual_information_bound(info_nce(positives, ratio, temperature=1.0), n - 1))
    assert information - 0.05 < bound < information + 0.02
