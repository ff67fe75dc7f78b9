"""The objectives of all pairs of views against naive float64 loops, closed forms and limits."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from drawn import draw_views
from torch import Tensor
from torch.nn.functional import normalize

from manyview.objectives import cmc_full_graph, info_nce, mv_dhel, mv_infonce, nt_xent, pvc, similarity

TAU = 0.2
APART = range(100)  # every row is a sample of its own


def meet(owner: Sequence[int], i: int, j: int) -> bool:
    """Whether row j may stand beside row i: it is the same, or another's."""
    return i == j or owner[i] != owner[j]


def exp_score(views: Tensor, tau: float, a: int, i: int, b: int, j: int) -> float:
    return math.exp(float(views[a, i] @ views[b, j]) / tau)


def naive_nt_xent(views: Tensor, tau: float, owner: Sequence[int] = APART) -> float:
    v, n, _ = views.shape
    total = 0.0
    for a in range(v):
        for i in range(n):
            everything = sum(
                math.exp(float(views[a, i] @ views[c, j]) / tau)
                for c in range(v)
                for j in range(n)
                if (c, j) != (a, i) and meet(owner, i, j)
            )
            for b in range(v):
                if b != a:
                    total -= math.log(math.exp(float(views[a, i] @ views[b, i]) / tau) / everything)
    return total / (v * (v - 1) * n)


@pytest.mark.parametrize("views", [2, 3])
def test_nt_xent_equals_the_loop(views: int) -> None:
    generator = torch.Generator().manual_seed(views)
    z = normalize(torch.randn(views, 5, 4, dtype=torch.float64, generator=generator), dim=-1)
    assert float(nt_xent(z, temperature=TAU)) == pytest.approx(naive_nt_xent(z, TAU), abs=1e-10)


def test_nt_xent_of_a_share_of_the_samples_is_that_share_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    z = normalize(torch.randn(3, 8, 4, dtype=torch.float64, generator=generator), dim=-1)
    whole = nt_xent(z, temperature=TAU, reduction="none")
    part = nt_xent(z[:, 2:5], temperature=TAU, pool=z, offset=2, reduction="none")
    assert torch.allclose(part, whole[:, 2:5], atol=1e-12)


def test_nt_xent_passes_gradcheck() -> None:
    z = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: nt_xent(normalize(z, dim=-1), temperature=TAU), z)


def test_nt_xent_of_equal_embeddings_is_log_of_all_but_the_anchor() -> None:
    assert float(nt_xent(normalize(torch.ones(3, 4, 5), dim=-1), temperature=TAU)) == pytest.approx(math.log(11))


def test_nt_xent_of_two_views_is_info_nce_with_the_rest_of_the_batch() -> None:
    z = normalize(torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)), dim=-1)
    both = []
    for a in (0, 1):
        scores = similarity(z[a], z.flatten(0, 1)).view(6, 2, 6)
        scores = scores.masked_fill(torch.eye(6, dtype=torch.bool)[:, None], -torch.inf)
        positives = similarity(z[a], z[1 - a].unsqueeze(1))
        both.append(info_nce(positives, scores.flatten(1), temperature=TAU))
    assert float(nt_xent(z, temperature=TAU)) == pytest.approx(float(sum(both)) / 2, abs=1e-12)


def naive_cmc(views: Tensor, tau: float, owner: Sequence[int] = APART) -> float:
    v, n, _ = views.shape
    total = 0.0
    for a in range(v):
        for b in range(v):
            if a != b:
                for i in range(n):
                    everything = sum(exp_score(views, tau, a, i, b, j) for j in range(n) if meet(owner, i, j))
                    total -= math.log(exp_score(views, tau, a, i, b, i) / everything) / n
    return total / (v * (v - 1))


def naive_pvc(views: Tensor, tau: float, owner: Sequence[int] = APART, *, mean: str) -> float:
    v, n, _ = views.shape
    total = 0.0
    for i in range(n):
        for a in range(v):
            shares = []
            for b in range(v):
                if b != a:
                    own = exp_score(views, tau, a, i, b, i)
                    others = [j for j in range(n) if owner[j] != owner[i]]
                    rest = sum(exp_score(views, tau, a, i, c, j) for j in others for c in range(v))
                    shares.append(own / (own + rest))
            if mean == "geometric":
                total -= sum(math.log(share) for share in shares) / (v - 1)
            else:
                total -= math.log(sum(shares) / (v - 1))
    return total / (n * v)


def naive_mv_infonce(views: Tensor, tau: float, owner: Sequence[int] = APART, *, same_view: bool) -> float:
    v, n, _ = views.shape
    total = 0.0
    for i in range(n):
        above = sum(exp_score(views, tau, a, i, b, i) for a in range(v) for b in range(v) if a != b)
        below = 0.0
        for a in range(v):
            for b in range(v):
                for j in range(n):
                    if (b, j) != (a, i) and (same_view or b != a) and meet(owner, i, j):
                        below += exp_score(views, tau, a, i, b, j)
        total -= math.log(above / below)
    return total / n


def naive_mv_dhel(views: Tensor, tau: float, owner: Sequence[int] = APART) -> float:
    v, n, _ = views.shape
    total = 0.0
    for i in range(n):
        total -= math.log(sum(exp_score(views, tau, a, i, b, i) for a in range(v) for b in range(v) if a != b))
        for a in range(v):
            total += math.log(sum(exp_score(views, tau, a, i, a, j) for j in range(n) if owner[j] != owner[i]))
    return total / n


CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., float]]] = {
    "nt_xent": (nt_xent, naive_nt_xent),
    "cmc": (cmc_full_graph, naive_cmc),
    "pvc geometric": (pvc, partial(naive_pvc, mean="geometric")),
    "pvc arithmetic": (partial(pvc, mean="arithmetic"), partial(naive_pvc, mean="arithmetic")),
    "mv_infonce": (mv_infonce, partial(naive_mv_infonce, same_view=True)),
    "mv_infonce printed": (partial(mv_infonce, same_view=False), partial(naive_mv_infonce, same_view=False)),
    "mv_dhel": (mv_dhel, naive_mv_dhel),
}
every_loop = pytest.mark.parametrize(("objective", "naive"), CASES.values(), ids=CASES.keys())
every_objective = pytest.mark.parametrize("objective", [objective for objective, _ in CASES.values()], ids=CASES.keys())


@every_loop
@pytest.mark.parametrize("views", [2, 4])
def test_objectives_equal_their_loops(
    objective: Callable[..., Tensor], naive: Callable[..., float], views: int
) -> None:
    z = draw_views(views, 5)
    assert float(objective(z, temperature=TAU)) == pytest.approx(naive(z, TAU), abs=1e-10)


@every_loop
def test_rows_of_one_owner_are_never_each_others_negatives(
    objective: Callable[..., Tensor], naive: Callable[..., float]
) -> None:
    z, owner = draw_views(3, 6).requires_grad_(), [4, 7, 4, 9, 9, 4]
    loss = objective(z, temperature=TAU, owner=torch.tensor(owner))
    assert float(loss.detach()) == pytest.approx(naive(z.detach(), TAU, owner), abs=1e-10)
    whole = objective(z, temperature=TAU, owner=torch.tensor(owner), reduction="none")
    part = objective(z[:, 2:5], temperature=TAU, pool=z, offset=2, owner=torch.tensor(owner), reduction="none")
    assert torch.allclose(part, whole[..., 2:5], atol=1e-12)
    apart = objective(z, temperature=TAU, owner=torch.arange(6))
    assert torch.equal(apart, objective(z, temperature=TAU))
    (gradient,) = torch.autograd.grad(objective(z, temperature=TAU, owner=torch.zeros(6)), z)
    assert gradient.isfinite().all(), "a batch of one group has no negatives"


@every_objective
def test_objectives_of_a_share_of_the_samples_are_that_share_of_the_whole(objective: Callable[..., Tensor]) -> None:
    z = draw_views(3, 8)
    whole = objective(z, temperature=TAU, reduction="none")
    part = objective(z[:, 2:5], temperature=TAU, pool=z, offset=2, reduction="none")
    assert torch.allclose(part, whole[..., 2:5], atol=1e-12)
    assert float(objective(z, temperature=TAU)) == pytest.approx(float(whole.mean()), abs=1e-12)


@every_objective
def test_objectives_pass_gradcheck(objective: Callable[..., Tensor]) -> None:
    raw = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: objective(normalize(x, dim=-1), temperature=TAU), raw)


@every_objective
def test_gradients_also_flow_into_a_pool_of_all_ranks(objective: Callable[..., Tensor]) -> None:
    pool = draw_views(3, 6).requires_grad_()
    (whole,) = torch.autograd.grad(objective(pool, temperature=TAU), pool)
    halves = [objective(pool[:, o : o + 3], temperature=TAU, pool=pool, offset=o) / 2 for o in (0, 3)]
    (summed,) = torch.autograd.grad(halves[0] + halves[1], pool)
    assert torch.allclose(whole, summed, atol=1e-12)


@every_objective
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_to_float32(objective: Callable[..., Tensor], dtype: torch.dtype) -> None:
    z = draw_views(3, 6).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective(z, temperature=0.01)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@every_objective
def test_a_cold_temperature_stays_exact(objective: Callable[..., Tensor]) -> None:
    z = draw_views(3, 6)
    exact = objective(z, temperature=0.01)
    assert float(objective(z.float(), temperature=0.01)) == pytest.approx(float(exact), rel=1e-4)


@every_objective
def test_without_any_other_sample_the_loss_and_its_gradients_are_finite(objective: Callable[..., Tensor]) -> None:
    z = draw_views(3, 1).requires_grad_()
    loss = objective(z, temperature=TAU)
    loss.backward()
    assert loss.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@every_objective
def test_the_order_of_views_and_samples_does_not_matter(objective: Callable[..., Tensor]) -> None:
    z = draw_views(4, 5)
    turned = z.roll(1, 0).flip(1)
    assert float(objective(z, temperature=TAU)) == pytest.approx(float(objective(turned, temperature=TAU)), abs=1e-12)


def test_equal_embeddings_cost_the_log_of_the_number_of_choices() -> None:
    z = normalize(torch.ones(3, 4, 5, dtype=torch.float64), dim=-1)
    assert float(cmc_full_graph(z, temperature=TAU)) == pytest.approx(math.log(4))
    for mean in ("geometric", "arithmetic"):
        assert float(pvc(z, temperature=TAU, mean=mean)) == pytest.approx(math.log(1 + 9))
    assert float(mv_infonce(z, temperature=TAU)) == pytest.approx(math.log(3 * 11 / 6))
    assert float(mv_infonce(z, temperature=TAU, same_view=False)) == pytest.approx(math.log(3 * 8 / 6))
    # One similarity of 1 attracts and three repel, each divided by τ.
    assert float(mv_dhel(z, temperature=TAU)) == pytest.approx(2 / TAU + 3 * math.log(3) - math.log(6))


def test_two_views_make_both_means_of_pvc_simclrs_loss() -> None:
    z = draw_views(2, 6)
    expected = float(nt_xent(z, temperature=TAU))
    assert float(pvc(z, temperature=TAU)) == pytest.approx(expected, abs=1e-12)
    assert float(pvc(z, temperature=TAU, mean="arithmetic")) == pytest.approx(expected, abs=1e-12)


def test_the_arithmetic_mean_of_pvc_never_costs_more_than_the_geometric() -> None:
    z = draw_views(4, 6)
    geometric = pvc(z, temperature=TAU, reduction="none")
    assert (pvc(z, temperature=TAU, mean="arithmetic", reduction="none") < geometric).all()


def test_the_full_graph_is_info_nce_with_the_other_samples_of_the_other_view() -> None:
    z = draw_views(3, 6)
    losses = []
    for a in range(3):
        for b in range(3):
            if a != b:
                negatives = similarity(z[a], z[b]).masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf)
                losses.append(float(info_nce(similarity(z[a], z[b].unsqueeze(1)), negatives, temperature=TAU)))
    assert float(cmc_full_graph(z, temperature=TAU)) == pytest.approx(sum(losses) / 6, abs=1e-12)


@every_objective
def test_single_views_are_refused(objective: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match="two views"):
        objective(torch.ones(1, 2, 3), temperature=TAU)


def test_unknown_means_are_refused() -> None:
    with pytest.raises(ValueError, match="geometric"):
        pvc(torch.ones(2, 2, 3), temperature=TAU, mean="harmonic")  # type: ignore[arg-type]
