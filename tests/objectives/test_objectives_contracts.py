"""What every objective of two similarity matrices keeps to, whatever its equation."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from drawn import matrices
from torch import Tensor

from manyview.objectives import (
    align_uniform,
    attraction,
    cacr,
    conditional_entropy,
    debiased,
    hard_negative,
    info_nce,
    jcl,
    mutual_information,
    nce,
    repulsion,
)

TAU, LAM = 0.2, 4.0


class Case(NamedTuple):
    objective: Callable[[Tensor, Tensor], Tensor]
    alone: Callable[[Tensor], Tensor]  # what is left of it without any negative
    cold: Callable[[Tensor, Tensor], Tensor]  # with exponents beyond the range of float32


def nothing(positives: Tensor) -> Tensor:
    return torch.zeros((), dtype=positives.dtype)


def contrast(objective: Callable[..., Tensor], alone: Callable[[Tensor], Tensor] = nothing, **own: float) -> Case:
    return Case(
        lambda p, n: objective(p, n, temperature=TAU, **own),
        alone,
        lambda p, n: objective(p, n, temperature=0.01, **own),
    )


def distance(alone: Callable[[Tensor], Tensor] | None = None, **own: object) -> Case:
    def loss(p: Tensor, n: Tensor, t_pos: float = 1.0, t_neg: float = 2.0) -> Tensor:
        return cacr(p, n, t_pos=t_pos, t_neg=t_neg, **own)  # type: ignore[arg-type]

    return Case(loss, alone or (lambda p: attraction(p, t_pos=1.0)), lambda p, n: loss(p, n, 60.0, 80.0))


CASES = {
    "info_nce": contrast(info_nce),
    "jcl": contrast(jcl, lambda p: p.var(1, correction=0).mean() * LAM / (2 * TAU**2), lam=LAM),
    "nce": contrast(nce, n=40, z=90.0),
    "cacr": distance(),
    "cacr inner": distance(lambda p: attraction(p, t_pos=1.0, cost="inner"), cost="inner"),
    "cacr rbf": distance(cost="rbf"),
    "cacr rbf far": distance(cost="rbf", rbf_t=1.0, negative_weights="far"),
    "cacr rbf uniform": distance(cost="rbf", negative_weights="uniform"),
    "cacr reversed": distance(
        lambda p: attraction(p, t_pos=1.0, weights="near"), positive_weights="near", negative_weights="far"
    ),
    "uaur": distance(lambda p: (2 - 2 * p).mean(), positive_weights="uniform", negative_weights="uniform"),
    "cacr margin": distance(lambda p: attraction(p, t_pos=1.0) + 0.9, margin=0.9),
    "repulsion": Case(
        lambda p, n: repulsion(n, t_neg=2.0) + 0 * p.sum(), nothing, lambda p, n: repulsion(n, t_neg=80.0) + 0 * p.sum()
    ),
    "entropy": Case(
        lambda p, n: conditional_entropy(n, t_neg=2.0).mean() + 0 * p.sum(),
        nothing,
        lambda p, n: conditional_entropy(n, t_neg=80.0).mean() + 0 * p.sum(),
    ),
    "information": Case(
        lambda p, n: mutual_information(n, t_neg=2.0) + 0 * p.sum(),
        nothing,
        lambda p, n: mutual_information(n, t_neg=80.0) + 0 * p.sum(),
    ),
    "debiased": contrast(debiased, tau_plus=0.1),
    "hard_negative": contrast(hard_negative, beta=1.0, tau_plus=0.02),
    "hard_negative floor": contrast(hard_negative, beta=1.0, tau_plus=0.9),
    "align_uniform": Case(
        lambda p, n: align_uniform(p, n, t=2.0, align_weight=0.7, uniform_weight=0.4),
        lambda p: 0.7 * (2 - 2 * p).mean(),
        lambda p, n: align_uniform(p, n, t=80.0, align_weight=0.7, uniform_weight=0.4),
    ),
    "align_uniform contrastive": Case(
        lambda p, n: align_uniform(p, n, t=2.0, align_weight=1.0, uniform_weight=1.0, contrastive_weight=0.5),
        lambda p: (2 - 2 * p).mean(),
        lambda p, n: align_uniform(
            p, n, t=80.0, align_weight=1.0, uniform_weight=1.0, contrastive_weight=0.5, temperature=0.01
        ),
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@every_case
def test_gradients_pass_gradcheck_with_and_without_masked_pairs(case: Case) -> None:
    positives, negatives = (x.requires_grad_() for x in matrices())
    hidden = torch.zeros_like(negatives, dtype=torch.bool)
    hidden[0, 3], hidden[2] = True, True
    assert torch.autograd.gradcheck(case.objective, (positives, negatives))
    assert torch.autograd.gradcheck(
        lambda p, n: case.objective(p, n.masked_fill(hidden, -torch.inf)), (positives, negatives)
    )


@every_case
def test_the_order_of_keys_and_negatives_does_not_matter(case: Case) -> None:
    positives, negatives = matrices()
    turned = case.objective(positives.flip(1), negatives.roll(3, 1))
    assert torch.allclose(case.objective(positives, negatives), turned, atol=1e-12)


@every_case
def test_masked_pairs_count_as_absent(case: Case) -> None:
    positives, negatives = matrices()
    hidden = negatives.clone()
    hidden[:, [1, 4]] = -torch.inf
    shorter = negatives[:, [0, 2, 3, *range(5, 11)]]
    for i in range(len(positives)):  # query by query, so that nothing averages out
        a, b = (case.objective(positives[i : i + 1], n[i : i + 1]) for n in (hidden, shorter))
        assert torch.allclose(a, b, atol=1e-12)


@every_case
@pytest.mark.parametrize("width", [0, 7])
@pytest.mark.parametrize("keys", [1, 4])
def test_without_any_negative_the_loss_and_its_gradients_are_finite(case: Case, width: int, keys: int) -> None:
    positives = torch.rand(3, keys, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    negatives = torch.full((3, width), -torch.inf, dtype=torch.float64, requires_grad=True)
    loss = case.objective(positives, negatives)
    assert float(loss.detach()) == pytest.approx(float(case.alone(positives.detach())), abs=1e-10)
    loss.backward()
    assert positives.grad is not None
    assert negatives.grad is not None
    assert positives.grad.isfinite().all()
    assert (negatives.grad == 0).all()


@every_case
def test_one_query_without_negatives_leaves_the_others_gradients_finite(case: Case) -> None:
    positives, negatives = matrices()
    negatives[2] = -torch.inf
    positives.requires_grad_(), negatives.requires_grad_()
    case.objective(positives, negatives).backward()
    assert positives.grad is not None
    assert negatives.grad is not None
    assert positives.grad.isfinite().all()
    assert negatives.grad.isfinite().all()
    assert (negatives.grad[2] == 0).all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_to_float32(case: Case, dtype: torch.dtype) -> None:
    positives, negatives = (x.to(dtype).requires_grad_() for x in matrices())
    loss = case.cold(positives, negatives)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    for matrix in (positives, negatives):
        assert matrix.grad is not None
        assert matrix.grad.isfinite().all()


@every_case
def test_a_cold_temperature_stays_finite_and_exact(case: Case) -> None:
    """exp(1/0.01) overflows float32; the result must still agree with float64."""
    positives, negatives = matrices()
    exact = case.cold(positives, negatives)
    assert exact.dtype == torch.float64
    assert float(case.cold(positives.float(), negatives.float())) == pytest.approx(float(exact), rel=1e-4, abs=1e-4)


def test_unknown_reductions_are_refused() -> None:
    positives, negatives = matrices()
    with pytest.raises(ValueError, match="reduction"):
        info_nce(positives, negatives, temperature=TAU, reduction="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reduction"):
        cacr(positives, negatives, t_pos=1.0, t_neg=2.0, reduction="sum")  # type: ignore[arg-type]
