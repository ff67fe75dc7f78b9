"""Noise-contrastive estimation against a naive float64 loop, closed forms, and the density that it must find."""

import math

import pytest
import torch
from drawn import embeddings, matrices
from memory import peak_memory
from torch import Tensor

from manyview.objectives import nce, normaliser, similarity
from manyview.objectives.rows import soft_plus_sum

TAU, TOTAL, Z = 0.2, 50, 400.0


def naive_nce(q: Tensor, keys: Tensor, negatives: Tensor, tau: float, n: int, z: float) -> Tensor:
    """Eq. 10 and 11 for one positive after the other."""
    m, losses = len(negatives), []

    def is_data(score: float) -> float:
        p_d, p_n = math.exp(score / tau) / z, 1 / n
        return p_d / (p_d + m * p_n)

    for i in range(len(q)):
        noise = sum(math.log(1 - is_data(float(q[i] @ negative))) for negative in negatives)
        data = sum(math.log(is_data(float(q[i] @ key))) for key in keys[i]) / keys.shape[1]
        losses.append(-data - noise)
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("keys", [1, 5])
@pytest.mark.parametrize("z", [0.01, Z, 1e6])
def test_nce_equals_the_loop(keys: int, z: float) -> None:
    q, k, negatives = embeddings(m=keys)
    got = nce(similarity(q, k), similarity(q, negatives), temperature=TAU, n=TOTAL, z=z, reduction="none")
    assert (got - naive_nce(q, k, negatives, TAU, TOTAL, z)).abs().max() < 1e-10


def test_z_may_be_a_tensor() -> None:
    positives, negatives = matrices()
    number, tensor = (nce(positives, negatives, temperature=TAU, n=TOTAL, z=z) for z in (Z, torch.tensor(Z)))
    assert torch.equal(number, tensor)


def test_scores_at_the_odds_of_noise_cost_log_two_each() -> None:
    """h/z = m/n makes data and noise equally likely."""
    m = 16
    level = TAU * math.log(Z * m / TOTAL)
    loss = nce(torch.full((3, 1), level), torch.full((3, m), level), temperature=TAU, n=TOTAL, z=Z)
    assert float(loss) == pytest.approx((1 + m) * math.log(2), abs=1e-5)


def test_one_posterior_for_all_pairs_gives_its_closed_form() -> None:
    """With z = n·mean(h) and all scores equal, P(D = 1) = 1 / (1 + m)."""
    m, positives, negatives = 16, torch.full((3, 1), 0.3), torch.full((3, 16), 0.3)
    z = normaliser(positives, negatives, temperature=TAU, n=TOTAL)
    loss = nce(positives, negatives, temperature=TAU, n=TOTAL, z=z)
    assert float(loss) == pytest.approx(math.log(1 + m) - m * math.log(m / (1 + m)), abs=1e-5)


def test_its_minimum_is_the_density_of_the_data() -> None:
    """Free scores s of a few atoms, data ~ p, m draws of uniform noise: the expected loss is least at e^s / z = p."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    n, m, z = len(p), 3, 7.0
    scores = (p * z).log().requires_grad_()
    every_draw = torch.cartesian_prod(*[torch.arange(n)] * (1 + m))  # a positive and m negatives
    atoms = scores[every_draw]
    losses = nce(atoms[:, :1], atoms[:, 1:], temperature=1.0, n=n, z=z, reduction="none")
    (p[every_draw[:, 0]] * losses).sum().backward()
    assert scores.grad is not None
    assert scores.grad.abs().max() < 1e-12


def test_the_normaliser_is_n_times_the_mean_over_all_scores() -> None:
    positives, negatives = matrices()
    negatives[0, 3] = negatives[2, 1] = -torch.inf
    scores = [float(s) for s in torch.cat([positives, negatives], 1).flatten() if s != -torch.inf]
    expected = TOTAL * sum(math.exp(s / TAU) for s in scores) / len(scores)
    z = normaliser(positives, negatives, temperature=TAU, n=TOTAL)
    assert float(z) == pytest.approx(expected, rel=1e-12)
    assert not normaliser(positives.requires_grad_(), negatives, temperature=TAU, n=TOTAL).requires_grad


def test_a_cold_normaliser_does_not_overflow() -> None:
    ones = torch.ones(2, 3)
    z = normaliser(ones, ones, temperature=0.01, n=TOTAL)
    assert float(z) == pytest.approx(TOTAL * math.exp(100), rel=1e-4)
    loss = nce(ones[:, :1], ones, temperature=0.01, n=TOTAL, z=z)
    assert float(loss) == pytest.approx(math.log(4) - 3 * math.log(3 / 4), abs=1e-4)


def test_blocked_soft_plus_sum_agrees_with_the_plain_form_forward_and_backward() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 20_011, dtype=torch.float64, generator=generator)
    rows[3, 5] = -torch.inf
    rows.requires_grad_()
    offset, weights = torch.randn(2, 60, dtype=torch.float64, generator=generator)
    results, gradients = [], []
    plain = -torch.nn.functional.logsigmoid(-(5.0 * rows + offset.unsqueeze(1))).sum(1)
    for value in (soft_plus_sum(rows, offset, scale=5.0), plain):
        results.append(value.detach())
        gradients.append(torch.autograd.grad((value * weights).sum(), rows)[0])
    assert torch.allclose(results[0], results[1], rtol=1e-12)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-12)


def test_it_keeps_no_matrix_but_its_scores() -> None:
    n, m = 256, 16_384
    positives, negatives = torch.rand(n, 1), torch.rand(n, m).requires_grad_()
    # The gradient, and blocks.
    assert peak_memory(lambda: nce(positives, negatives, temperature=TAU, n=TOTAL, z=Z).backward()) < 1.7 * 4 * n * m
