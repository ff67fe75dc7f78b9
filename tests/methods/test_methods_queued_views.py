"""The family with queue and batch: each step against CACR's Algorithm 3, written out."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from stepping import QUEUE, N, batch, make, moved, value
from torch import Tensor

from manyview.methods.au_cl_moco import AUCLMoCo, AUCLMoCoConfig
from manyview.methods.base import ViewBatch
from manyview.methods.cacr_moco import CACRMoCo, CACRMoCoConfig
from manyview.methods.hn_cl_moco import HNCLMoCo, HNCLMoCoConfig
from manyview.objectives import align_uniform, hard_negative

V = 3


def distances(q: Tensor, others: Tensor) -> Tensor:
    return (q.unsqueeze(-2) - others).square().sum(-1)


def algorithm_3(method: CACRMoCo, b: ViewBatch) -> Tensor:
    config = method.config
    queries = [method.encoder(view) for view in b.images]
    with torch.no_grad():
        keys = [method.keys.encoder(view) for view in b.images]
    pull, push = torch.zeros(()), torch.zeros(())
    for k, q in enumerate(queries):
        cost = distances(q, torch.stack([key for m, key in enumerate(keys) if m != k], 1))  # (N, K)
        with torch.no_grad():
            weights = torch.softmax(cost * config.t_pos, 1)
        pull = pull + (cost * weights).sum(1).mean()
        away = 2 - 2 * q @ method.queue.keys.T
        if config.with_intra_batch:
            within = distances(q, q)[~torch.eye(N, dtype=torch.bool)].view(N, N - 1)
            away = torch.cat([away, within], 1)
        push = push - (away * torch.softmax(-config.t_neg * away, 1)).sum(1).mean()
    return (pull + push) / len(queries)


@pytest.mark.parametrize("with_intra_batch", [True, False])
def test_a_cacr_step_with_a_queue_is_algorithm_3(with_intra_batch: bool) -> None:
    config = CACRMoCoConfig(queue_size=QUEUE, views=V, with_intra_batch=with_intra_batch)
    method, b = moved(make(CACRMoCo, config)), batch(V)
    before = method.queue.keys.clone()
    loss, expected = method.step(b)["loss"], algorithm_3(method, b)
    assert value(loss) == pytest.approx(value(expected), abs=1e-10)
    parameters = list(method.encoder.parameters())
    for got, want in zip(*(torch.autograd.grad(each, parameters) for each in (loss, expected)), strict=True):
        assert torch.allclose(got, want, atol=1e-10)
    assert torch.equal(method.queue.keys, before)  # nothing enters before the scoring


def test_the_keys_of_the_last_view_are_enqueued_as_unit_vectors() -> None:
    method, b = moved(make(CACRMoCo, CACRMoCoConfig(queue_size=QUEUE, views=V))), batch(V)
    method.step(b)
    last = method.keys.encoder(b.images[-1])
    method.after_step()
    assert torch.allclose(method.queue.keys[:N], last, atol=1e-10)
    assert torch.allclose(method.queue.keys[:N].norm(dim=1), torch.ones(N, dtype=torch.float64))
    assert method.queue.owner[:N].tolist() == b.index.tolist()


def rows(method: Any, b: ViewBatch) -> list[tuple[Tensor, Tensor]]:
    """Positives and negatives of each view's queries, pair by pair."""
    queries = [method.encoder(view) for view in b.images]
    keys = [method.keys.encoder(view) for view in b.images]
    owner = method.owners(b.index)
    queued = torch.zeros(N, QUEUE, dtype=torch.bool)
    if method.groups is not None:
        for i, j in product(range(N), range(QUEUE)):
            sample = int(method.queue.owner[j])
            queued[i, j] = sample >= 0 and bool(method.groups[sample] == owner[i])
    result = []
    for k, q in enumerate(queries):
        positives = torch.stack([(q * key).sum(1) for m, key in enumerate(keys) if m != k], 1)
        within = (q @ q.T).masked_fill(owner[:, None] == owner, -torch.inf)
        stored = (q @ method.queue.keys.T).masked_fill(queued, -torch.inf)
        result.append((positives, torch.cat([stored, within], 1)))
    return result


def test_alignment_and_uniformity_run_over_queue_and_batch() -> None:
    method, b = moved(make(AUCLMoCo, AUCLMoCoConfig(queue_size=QUEUE, views=V))), batch(V)
    expected = [align_uniform(p, n, t=3.0, align_weight=1.0, uniform_weight=1.0) for p, n in rows(method, b)]
    assert value(method.step(b)["loss"]) == pytest.approx(value(torch.stack(expected).mean()), abs=1e-10)


def test_hard_negatives_are_found_in_queue_and_batch() -> None:
    method, b = moved(make(HNCLMoCo, HNCLMoCoConfig(queue_size=QUEUE, views=V))), batch(V)
    expected = [hard_negative(p, n, temperature=0.5, beta=1.0, tau_plus=0.1) for p, n in rows(method, b)]
    assert value(method.step(b)["loss"]) == pytest.approx(value(torch.stack(expected).mean()), abs=1e-10)


@pytest.mark.parametrize("grouped", [False, True])
def test_neither_a_stand_in_nor_a_group_is_contrasted_with_itself(grouped: bool) -> None:
    method, b = moved(make(HNCLMoCo, HNCLMoCoConfig(queue_size=QUEUE, views=V))), batch(V)
    b = replace(b, index=torch.tensor([0, 1, 1, 3]))
    if grouped:
        method.know_groups(torch.arange(100) // 2)
    method.step(b)
    method.after_step()
    expected = [hard_negative(p, n, temperature=0.5, beta=1.0, tau_plus=0.1) for p, n in rows(method, b)]
    assert value(method.step(b)["loss"]) == pytest.approx(value(torch.stack(expected).mean()), abs=1e-10)


def test_own_old_keys_can_be_masked_for_every_view() -> None:
    losses = []
    for mask_own in (False, True):
        config = CACRMoCoConfig(
            queue_size=QUEUE, views=V, queue_start="empty", mask_own=mask_own, with_intra_batch=False
        )
        method = make(CACRMoCo, config)
        method.step(batch(V))
        method.after_step()
        losses.append(value(method.step(batch(V))["loss"]))  # the same samples again
    assert losses[1] < losses[0] - 1e-3  # its own old key is the nearest negative


def test_the_papers_values() -> None:
    """CACR, C.2."""
    config = CACRMoCoConfig()
    assert (config.queue_size, config.momentum, config.views, config.t_pos, config.t_neg) == (
        65_536,
        0.999,
        5,
        1.0,
        2.0,
    )
    assert config.with_intra_batch
    assert (AUCLMoCoConfig().t, AUCLMoCoConfig().temperature, HNCLMoCoConfig().temperature) == (3.0, 0.2, 0.5)
    paper = CACRMoCo.paper
    assert (paper.optim.batch_size, paper.optim.lr, paper.optim.epochs) == (256, 0.03, 200)
    assert (paper.encoder.backbone, paper.encoder.dim, paper.views.augment) == ("resnet50", 128, "moco-v2")
