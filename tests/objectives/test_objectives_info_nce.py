"""InfoNCE and JCL against naive float64 loops written from their equations, closed forms and limits."""

import math
from collections.abc import Callable

import pytest
import torch
from drawn import embeddings, matrices
from memory import allocated
from torch import Tensor
from torch.nn.functional import normalize

from manyview.objectives import info_nce, jcl, similarity

TAU, LAM = 0.2, 4.0
Objective = Callable[..., Tensor]
ROWWISE: list[tuple[Objective, dict[str, float]]] = [(info_nce, {}), (jcl, {"lam": LAM})]


def naive_info_nce(q: Tensor, keys: Tensor, negatives: Tensor, tau: float) -> Tensor:
    losses = []
    for i in range(len(q)):
        total = 0.0
        for m in range(keys.shape[1]):
            positive = math.exp(float(q[i] @ keys[i, m]) / tau)
            rest = sum(math.exp(float(q[i] @ negative) / tau) for negative in negatives)
            total -= math.log(positive / (positive + rest))
        losses.append(total / keys.shape[1])
    return torch.tensor(losses, dtype=torch.float64)


def naive_jcl(q: Tensor, keys: Tensor, negatives: Tensor, tau: float, lam: float) -> Tensor:
    """Algorithm 1, lines 6 to 10, with the explicit D×D covariance."""
    losses = []
    for i in range(len(q)):
        mu = keys[i].mean(0)
        sigma = torch.zeros(q.shape[1], q.shape[1], dtype=torch.float64)
        for m in range(keys.shape[1]):
            sigma += torch.outer(keys[i, m] - mu, keys[i, m] - mu) / keys.shape[1]
        near = float(q[i] @ mu) / tau
        positive = math.exp(near + lam / (2 * tau**2) * float(q[i] @ sigma @ q[i]))
        losses.append(math.log(positive + sum(math.exp(float(q[i] @ n) / tau) for n in negatives)) - near)
    return torch.tensor(losses, dtype=torch.float64)


def test_info_nce_equals_the_loop() -> None:
    q, keys, negatives = embeddings()
    got = info_nce(similarity(q, keys), similarity(q, negatives), temperature=TAU, reduction="none")
    assert (got - naive_info_nce(q, keys, negatives, TAU)).abs().max() < 1e-10


def test_jcl_equals_the_loop_with_the_explicit_covariance() -> None:
    q, keys, negatives = embeddings()
    got = jcl(similarity(q, keys), similarity(q, negatives), temperature=TAU, lam=LAM, reduction="none")
    assert (got - naive_jcl(q, keys, negatives, TAU, LAM)).abs().max() < 1e-10


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
@pytest.mark.parametrize("level", [-1.0, 0.0, 0.3])
def test_equal_similarities_cost_log_of_the_number_of_choices(
    objective: Objective, own: dict[str, float], level: float
) -> None:
    loss = objective(torch.full((3, 4), level), torch.full((3, 15), level), temperature=TAU, **own)
    assert float(loss) == pytest.approx(math.log(16), abs=1e-6)


def test_jcl_of_identical_keys_is_info_nce() -> None:
    positives, negatives = matrices()
    same = positives[:, :1].expand(-1, 5)
    got = jcl(same, negatives, temperature=TAU, lam=LAM, reduction="none")
    assert torch.allclose(got, info_nce(same, negatives, temperature=TAU, reduction="none"), atol=1e-12)


def test_jcl_without_lambda_and_with_one_key_is_info_nce() -> None:
    positives, negatives = matrices()
    one = positives[:, :1]
    got = jcl(one, negatives, temperature=TAU, lam=0.0, reduction="none")
    assert torch.allclose(got, info_nce(one, negatives, temperature=TAU, reduction="none"), atol=1e-12)


def test_jcl_bounds_the_loss_of_infinitely_many_gaussian_keys() -> None:
    """Eq. 8 against a Monte Carlo of Eq. 4 for keys ~ N(μ, λΣ)."""
    q, keys, negatives = embeddings(n=4)
    draws = 100_000
    bound = jcl(similarity(q, keys), similarity(q, negatives), temperature=TAU, lam=LAM, reduction="none")
    generator = torch.Generator().manual_seed(1)
    for i in range(4):
        mu = keys[i].mean(0)
        centred = (keys[i] - mu) / math.sqrt(keys.shape[1])
        # λΣ = λ CᵀC, so μ + √λ·Cᵀe with standard normal e has just this covariance.
        noise = torch.randn(draws, keys.shape[1], dtype=torch.float64, generator=generator)
        samples = mu + math.sqrt(LAM) * noise @ centred
        rows = similarity(q[i : i + 1], samples).T
        rest = similarity(q[i : i + 1], negatives).expand(draws, -1)
        sampled = info_nce(rows, rest, temperature=TAU, reduction="none")
        error = float(sampled.std()) / math.sqrt(draws)
        assert float(bound[i]) > float(sampled.mean()) + 4 * error


def test_jcl_meets_the_infinite_loss_when_all_keys_are_equally_near() -> None:
    """Keys that vary only orthogonally to the query: q·k is constant and Jensen's gap closes."""
    q, _, negatives = embeddings(n=4)
    orthogonal = torch.randn(4, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    orthogonal -= (orthogonal @ q.unsqueeze(2)) * q.unsqueeze(1)
    keys = 0.6 * q.unsqueeze(1) + orthogonal
    positives, rest = similarity(q, keys), similarity(q, negatives)
    exact = info_nce(positives[:, :1], rest, temperature=TAU, reduction="none")
    assert torch.allclose(jcl(positives, rest, temperature=TAU, lam=LAM, reduction="none"), exact, atol=1e-10)


def test_jcl_falls_with_nearer_means_and_farther_negatives_and_rises_with_spread() -> None:
    """The monotonicities of §3.3."""
    positives, negatives = matrices()

    def loss(p: Tensor, n: Tensor, lam: float = LAM) -> Tensor:
        return jcl(p, n, temperature=TAU, lam=lam, reduction="none")

    base = loss(positives, negatives)
    assert (loss(positives + 0.05, negatives) < base).all()
    for j in range(negatives.shape[1]):
        farther = negatives.clone()
        farther[:, j] -= 0.05
        assert (loss(positives, farther) < base).all()
    mean = positives.mean(1, keepdim=True)
    assert (loss(mean + 1.1 * (positives - mean), negatives) > base).all()
    assert (loss(positives, negatives, 5.0) > base).all()


def test_jcl_allocates_less_than_a_hundredth_of_the_covariance_form() -> None:
    n, m, d, k = 256, 5, 2048, 4096
    q = normalize(torch.randn(n, d), dim=-1).requires_grad_()
    keys, queue = normalize(torch.randn(n, m, d), dim=-1), normalize(torch.randn(k, d), dim=-1)

    def ours() -> None:  # forward and backward
        jcl(similarity(q, keys), similarity(q, queue), temperature=TAU, lam=LAM).backward()

    def covariance() -> Tensor:  # only the matrices themselves, not what is done with them nor their gradient
        centred = keys - keys.mean(1, keepdim=True)
        return torch.einsum("nmd,nme->nde", centred, centred)  # (N, D, D): 4.3 GB

    assert allocated(ours) < 0.01 * allocated(covariance)
