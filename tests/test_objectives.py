"""Each objective against a naive float64 loop written from its equation, closed forms, limits and gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from manyview.objectives import info_nce, jcl, log_sum_exp, nt_xent, similarity

TAU, LAM = 0.2, 4.0
Objective = Callable[..., Tensor]
ROWWISE: list[tuple[Objective, dict[str, float]]] = [(info_nce, {}), (jcl, {"lam": LAM})]


def embeddings(n: int = 6, m: int = 5, k: int = 11, d: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """Unit queries (N, D), keys near them (N, M, D) and negatives (K, D), float64."""
    generator = torch.Generator().manual_seed(n * m * k * d)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    q = normalize(draw(n, d), dim=-1)
    return q, normalize(q[:, None] + 0.7 * draw(n, m, d), dim=-1), normalize(draw(k, d), dim=-1)


def matrices() -> tuple[Tensor, Tensor]:
    q, keys, negatives = embeddings()
    return similarity(q, keys), similarity(q, negatives)


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


def naive_nt_xent(views: Tensor, tau: float) -> float:
    v, n, _ = views.shape
    total = 0.0
    for a in range(v):
        for i in range(n):
            everything = sum(
                math.exp(float(views[a, i] @ views[c, j]) / tau) for c in range(v) for j in range(n) if (c, j) != (a, i)
            )
            for b in range(v):
                if b != a:
                    total -= math.log(math.exp(float(views[a, i] @ views[b, i]) / tau) / everything)
    return total / (v * (v - 1) * n)


def test_similarity_is_the_dot_product_with_own_and_with_shared_vectors() -> None:
    q, keys, negatives = embeddings()
    own, shared = similarity(q, keys), similarity(q, negatives)
    for i in range(len(q)):
        for m in range(keys.shape[1]):
            assert own[i, m] == pytest.approx(float(q[i] @ keys[i, m]), abs=1e-12)
        for j in range(len(negatives)):
            assert shared[i, j] == pytest.approx(float(q[i] @ negatives[j]), abs=1e-12)


def test_similarity_stays_exact_under_autocast_and_raises_half_precision() -> None:
    q, keys, negatives = (x.float() for x in embeddings())
    exact = similarity(q, keys), similarity(q, negatives)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(similarity(q, keys), exact[0])
        assert torch.equal(similarity(q, negatives), exact[1])
    assert similarity(q.half(), keys.half()).dtype == torch.float32
    assert similarity(q.double(), keys.double()).dtype == torch.float64


def test_info_nce_equals_the_loop() -> None:
    q, keys, negatives = embeddings()
    got = info_nce(similarity(q, keys), similarity(q, negatives), temperature=TAU, reduction="none")
    assert (got - naive_info_nce(q, keys, negatives, TAU)).abs().max() < 1e-10


def test_jcl_equals_the_loop_with_the_explicit_covariance() -> None:
    q, keys, negatives = embeddings()
    got = jcl(similarity(q, keys), similarity(q, negatives), temperature=TAU, lam=LAM, reduction="none")
    assert (got - naive_jcl(q, keys, negatives, TAU, LAM)).abs().max() < 1e-10


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


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
def test_gradients_pass_gradcheck_with_and_without_masked_pairs(objective: Objective, own: dict[str, float]) -> None:
    positives, negatives = (x.requires_grad_() for x in matrices())
    hidden = torch.zeros_like(negatives, dtype=torch.bool)
    hidden[0, 3], hidden[2] = True, True

    def masked(p: Tensor, n: Tensor) -> Tensor:
        return objective(p, n.masked_fill(hidden, -torch.inf), temperature=TAU, **own)

    assert torch.autograd.gradcheck(lambda p, n: objective(p, n, temperature=TAU, **own), (positives, negatives))
    assert torch.autograd.gradcheck(masked, (positives, negatives))


def test_nt_xent_passes_gradcheck() -> None:
    z = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: nt_xent(normalize(z, dim=-1), temperature=TAU), z)


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
@pytest.mark.parametrize("level", [-1.0, 0.0, 0.3])
def test_equal_similarities_cost_log_of_the_number_of_choices(
    objective: Objective, own: dict[str, float], level: float
) -> None:
    loss = objective(torch.full((3, 4), level), torch.full((3, 15), level), temperature=TAU, **own)
    assert float(loss) == pytest.approx(math.log(16), abs=1e-6)


def test_nt_xent_of_equal_embeddings_is_log_of_all_but_the_anchor() -> None:
    assert float(nt_xent(normalize(torch.ones(3, 4, 5), dim=-1), temperature=TAU)) == pytest.approx(math.log(11))


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


def test_nt_xent_of_two_views_is_info_nce_with_the_rest_of_the_batch() -> None:
    z = normalize(torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)), dim=-1)
    both = []
    for a in (0, 1):
        scores = similarity(z[a], z.flatten(0, 1)).view(6, 2, 6)
        scores = scores.masked_fill(torch.eye(6, dtype=torch.bool)[:, None], -torch.inf)
        positives = similarity(z[a], z[1 - a].unsqueeze(1))
        both.append(info_nce(positives, scores.flatten(1), temperature=TAU))
    assert float(nt_xent(z, temperature=TAU)) == pytest.approx(float(sum(both)) / 2, abs=1e-12)


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


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
def test_the_order_of_keys_and_negatives_does_not_matter(objective: Objective, own: dict[str, float]) -> None:
    positives, negatives = matrices()
    loss = objective(positives, negatives, temperature=TAU, **own)
    turned = objective(positives.flip(1), negatives.roll(3, 1), temperature=TAU, **own)
    assert torch.allclose(loss, turned, atol=1e-12)


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
def test_masked_pairs_count_as_absent(objective: Objective, own: dict[str, float]) -> None:
    positives, negatives = matrices()
    hidden = negatives.clone()
    hidden[:, [1, 4]] = -torch.inf
    shorter = negatives[:, [0, 2, 3, *range(5, 11)]]
    a, b = (objective(positives, n, temperature=TAU, reduction="none", **own) for n in (hidden, shorter))
    assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
@pytest.mark.parametrize("width", [0, 7])
def test_without_any_negative_the_loss_and_its_gradients_are_finite(
    objective: Objective, own: dict[str, float], width: int
) -> None:
    positives = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    negatives = torch.full((3, width), -torch.inf, dtype=torch.float64, requires_grad=True)
    loss = objective(positives, negatives, temperature=TAU, **own)
    spread = positives.var(1, correction=0).mean() * own.get("lam", 0.0) / (2 * TAU**2)
    assert float(loss.detach()) == pytest.approx(float(spread.detach()), abs=1e-10)
    loss.backward()
    assert positives.grad is not None
    assert negatives.grad is not None
    assert positives.grad.isfinite().all()
    assert (negatives.grad == 0).all()


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_to_float32(objective: Objective, own: dict[str, float], dtype: torch.dtype) -> None:
    positives, negatives = (x.to(dtype).requires_grad_() for x in matrices())
    loss = objective(positives, negatives, temperature=0.01, **own)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert positives.grad is not None
    assert positives.grad.isfinite().all()


@pytest.mark.parametrize(("objective", "own"), ROWWISE)
def test_a_cold_temperature_stays_finite_and_exact(objective: Objective, own: dict[str, float]) -> None:
    """exp(1/0.01) overflows float32; the result must still agree with float64."""
    positives, negatives = matrices()
    exact = objective(positives, negatives, temperature=0.01, **own)
    single = objective(positives.float(), negatives.float(), temperature=0.01, **own)
    assert float(single) == pytest.approx(float(exact), rel=1e-4)
    z = normalize(torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    assert nt_xent(z, temperature=0.01).isfinite()


def test_blocked_log_sum_exp_agrees_with_the_plain_form_forward_and_backward() -> None:
    rows = torch.randn(37, 20_011, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    weights = torch.randn(37, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results, gradients = [], []
    for value in (log_sum_exp(rows, scale=5.0), torch.logsumexp(5.0 * rows, 1)):
        results.append(value.detach())
        gradients.append(torch.autograd.grad((value * weights).sum(), rows)[0])
    assert torch.allclose(results[0], results[1], atol=1e-12)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-12)


def test_unknown_reductions_and_single_views_are_refused() -> None:
    positives, negatives = matrices()
    with pytest.raises(ValueError, match="reduction"):
        info_nce(positives, negatives, temperature=TAU, reduction="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two views"):
        nt_xent(torch.ones(1, 2, 3), temperature=TAU)


def allocated(function: Callable[[], object]) -> int:
    """Bytes that the operators of a call allocate in all."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    return sum(max(0, event.self_cpu_memory_usage) for event in profile.events())


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
