"""Similarities, and the two fused passes over rows against their plain forms."""

import math

import pytest
import torch
from drawn import embeddings
from memory import peak_memory
from torch import Tensor

from manyview.objectives import log_sum_exp, similarity, soft_mean


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


def test_blocked_log_sum_exp_agrees_with_the_plain_form_forward_and_backward() -> None:
    rows = torch.randn(37, 20_011, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    weights = torch.randn(37, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results, gradients = [], []
    for value in (log_sum_exp(rows, scale=5.0), torch.logsumexp(5.0 * rows, 1)):
        results.append(value.detach())
        gradients.append(torch.autograd.grad((value * weights).sum(), rows)[0])
    assert torch.allclose(results[0], results[1], atol=1e-12)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-12)


def plain_soft_mean(rows: Tensor, scale: float, detach_weights: bool = False) -> tuple[Tensor, Tensor]:
    """The same in few lines, for rows with at least one finite entry."""
    excluded = rows == -torch.inf
    logits = (scale * rows.masked_fill(excluded, 0.0)).masked_fill(excluded, -torch.inf)
    weights = logits.softmax(1)
    weights = weights.detach() if detach_weights else weights
    return (weights * rows.masked_fill(excluded, 0.0)).sum(1), logits.logsumexp(1)


@pytest.mark.parametrize("scale", [5.0, -5.0, 0.0])
@pytest.mark.parametrize("detach_weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_blocked_soft_mean_agrees_with_the_plain_form_forward_and_backward(
    scale: float, detach_weights: bool, masked: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(37, 20_011, generator=generator, dtype=torch.float64)
    if masked:
        rows[torch.rand(rows.shape, generator=generator) < 0.3] = -torch.inf
    rows.requires_grad_()
    one, two = torch.randn(2, 37, generator=generator, dtype=torch.float64)
    results, gradients = [], []
    for mean, log_sum in (
        soft_mean(rows, scale=scale, detach_weights=detach_weights),
        plain_soft_mean(rows, scale, detach_weights),
    ):
        results.append(torch.stack([mean, log_sum]).detach())
        gradients.append(torch.autograd.grad((mean * one + log_sum * two).sum(), rows)[0])
    assert torch.allclose(results[0], results[1], atol=1e-12)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-12)


@pytest.mark.parametrize("scale", [3.0, -3.0, 0.0])
def test_fused_passes_skip_excluded_entries_whatever_the_scale(scale: float) -> None:
    rows = torch.tensor([[0.5, -torch.inf, -0.2], [-torch.inf] * 3], dtype=torch.float64)
    left = math.exp(0.5 * scale), math.exp(-0.2 * scale)
    mean, log_sum = soft_mean(rows, scale=scale)
    expected = (0.5 * left[0] - 0.2 * left[1]) / sum(left)
    assert mean.tolist() == pytest.approx([expected, 0.0], abs=1e-12)
    for sums in (log_sum, log_sum_exp(rows, scale=scale)):
        assert sums.tolist() == pytest.approx([math.log(sum(left)), -math.inf], abs=1e-12)


@pytest.mark.parametrize("scale", [3.0, -3.0, 0.0])
def test_fused_passes_pass_gradcheck_with_excluded_entries(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4, 6, generator=generator, dtype=torch.float64).requires_grad_()
    hidden = torch.zeros(4, 6, dtype=torch.bool)
    hidden[0, 2], hidden[1] = True, True
    lonely = hidden.all(1)

    def both(rows: Tensor) -> Tensor:
        rows = rows.masked_fill(hidden, -torch.inf)
        mean, log_sum = soft_mean(rows, scale=scale)
        return mean + (log_sum + log_sum_exp(rows, scale=scale)).masked_fill(lonely, 0.0)

    assert torch.autograd.gradcheck(both, rows)


def test_soft_mean_does_not_hide_what_is_not_a_number() -> None:
    mean, log_sum = soft_mean(torch.tensor([[0.1, float("nan")]]), scale=2.0)
    assert mean.isnan().all()
    assert log_sum.isnan().all()


@pytest.mark.parametrize("detach_weights", [False, True])
def test_soft_mean_keeps_its_argument_and_nothing_else_of_that_size(detach_weights: bool) -> None:
    rows = torch.randn(64, 8192).requires_grad_()
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        soft_mean(rows, scale=4.0, detach_weights=detach_weights)
    assert sum(kept.values()) <= rows.untyped_storage().nbytes() + 4 * 64 * 4


def test_soft_mean_needs_less_than_half_the_memory_of_the_plain_form() -> None:
    rows = torch.randn(256, 16_384).requires_grad_()

    def fused() -> None:
        torch.autograd.grad(soft_mean(rows, scale=4.0)[0].sum(), rows)

    def plain() -> None:
        weights = (4.0 * rows).softmax(1)
        torch.autograd.grad((weights * rows).sum(), rows)

    assert peak_memory(fused) < 0.5 * peak_memory(plain)
