"""AU-CL, debiased and hard-negative contrast against naive float64 loops, closed forms and limits."""

import math

import pytest
import torch
from drawn import embeddings, matrices
from torch import Tensor

from manyview.objectives import align_uniform, debiased, hard_negative, info_nce, repulsion, similarity

TAU = 0.5


def naive_hard_negative(q: Tensor, keys: Tensor, negatives: Tensor, beta: float, tau_plus: float) -> list[float]:
    n, losses = len(negatives), []
    for i in range(len(q)):
        terms = [math.exp(float(q[i] @ negative) / TAU) for negative in negatives]
        importance = [term**beta for term in terms]
        r = sum(w * e for w, e in zip(importance, terms, strict=True)) / (sum(importance) / n)
        total = 0.0
        for key in keys[i]:
            p = math.exp(float(q[i] @ key) / TAU)
            g = max((r - n * tau_plus * p) / (1 - tau_plus), n * math.exp(-1 / TAU))
            total -= math.log(p / (p + g))
        losses.append(total / len(keys[i]))
    return losses


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("tau_plus", [0.0, 0.01, 0.1, 0.5])
def test_hard_negative_equals_the_loop(beta: float, tau_plus: float) -> None:
    q, keys, negatives = embeddings()
    got = hard_negative(
        similarity(q, keys), similarity(q, negatives), temperature=TAU, beta=beta, tau_plus=tau_plus, reduction="none"
    )
    assert got.tolist() == pytest.approx(naive_hard_negative(q, keys, negatives, beta, tau_plus), abs=1e-10)


def test_hard_negative_without_beta_is_debiased_and_without_tau_plus_info_nce() -> None:
    positives, negatives = matrices()
    plain = info_nce(positives, negatives, temperature=TAU, reduction="none")
    got = hard_negative(positives, negatives, temperature=TAU, beta=0.0, tau_plus=0.0, reduction="none")
    assert torch.allclose(got, plain, atol=1e-12)
    q, keys, others = embeddings()
    one = debiased(positives, negatives, temperature=TAU, tau_plus=0.1, reduction="none")
    assert one.tolist() == pytest.approx(naive_hard_negative(q, keys, others, 0.0, 0.1), abs=1e-10)


def test_a_query_that_is_nearer_to_its_key_than_the_floor_allows_feels_the_floor_only() -> None:
    positives = torch.full((1, 1), 1.0, dtype=torch.float64).requires_grad_()
    negatives = torch.full((1, 5), -0.9, dtype=torch.float64).requires_grad_()
    loss = hard_negative(positives, negatives, temperature=TAU, beta=1.0, tau_plus=0.3)
    assert float(loss.detach()) == pytest.approx(math.log1p(5 * math.exp(-2 / TAU)), abs=1e-12)
    loss.backward()
    assert negatives.grad is not None
    assert (negatives.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_stay_finite_where_the_correction_meets_the_floor(dtype: torch.dtype) -> None:
    positives = torch.linspace(-1, 1, 2001, dtype=dtype).unsqueeze(1).requires_grad_()
    negatives = torch.full((2001, 10), 0.1, dtype=dtype).requires_grad_()
    hard_negative(positives, negatives, temperature=0.07, beta=1.0, tau_plus=0.1, reduction="none").sum().backward()
    for matrix in (positives, negatives):
        assert matrix.grad is not None
        assert matrix.grad.isfinite().all()


def test_a_negative_that_is_not_a_number_shows() -> None:
    negatives = torch.tensor([[0.1, float("nan")]])
    assert hard_negative(torch.ones(1, 1), negatives, temperature=TAU, beta=1.0, tau_plus=0.1).isnan()


@pytest.mark.parametrize("tau_plus", [-0.1, 1.0])
def test_a_share_outside_its_range_is_refused(tau_plus: float) -> None:
    with pytest.raises(ValueError, match="tau_plus"):
        debiased(*matrices(), temperature=TAU, tau_plus=tau_plus)


@pytest.mark.parametrize("contrastive_weight", [0.0, 0.5])
def test_align_uniform_equals_the_loop(contrastive_weight: float) -> None:
    q, keys, _ = embeddings()
    t, tau = 2.0, 0.19
    align = sum(float((q[i] - key).square().sum()) for i in range(len(q)) for key in keys[i]) / (len(q) * len(keys[0]))
    terms = [math.exp(-t * float((q[i] - q[j]).square().sum())) for i in range(len(q)) for j in range(i)]
    pairs = similarity(q, q).masked_fill(torch.eye(len(q), dtype=torch.bool), -torch.inf)
    got = align_uniform(
        similarity(q, keys),
        pairs,
        t=t,
        align_weight=0.98,
        uniform_weight=0.96,
        contrastive_weight=contrastive_weight,
        temperature=tau,
    )
    expected = 0.98 * align + 0.96 * math.log(sum(terms) / len(terms))
    expected += contrastive_weight * float(info_nce(similarity(q, keys), pairs, temperature=tau))
    assert float(got) == pytest.approx(expected, abs=1e-10)


def test_uniformity_of_equal_distances_is_minus_t_times_the_distance() -> None:
    loss = align_uniform(torch.ones(3, 1), torch.full((3, 5), 0.25), t=2.0, align_weight=1.0, uniform_weight=1.0)
    assert float(loss) == pytest.approx(-2.0 * 1.5, abs=1e-6)


def test_uniformity_is_cacrs_rbf_repulsion_with_uniform_weights() -> None:
    positives, pairs = matrices()
    uniform = align_uniform(positives, pairs, t=2.0, align_weight=0.0, uniform_weight=1.0)
    rbf = repulsion(pairs, t_neg=1.0, cost="rbf", rbf_t=2.0, weights="uniform")
    assert float(uniform) == pytest.approx(float(rbf), abs=1e-12)
