"""What a memory bank draws, scores, learns and remembers."""

import itertools

import pytest
import torch
from memory import peak_memory
from torch import Tensor
from torch.nn.functional import normalize

from manyview.negatives import MemoryBank
from manyview.objectives import info_nce

SEED, STEP = 3, 5


def unit(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1)


def make(n: int, dim: int, draw: int, momentum: float = 0.5) -> MemoryBank:
    bank = MemoryBank(n, dim, momentum=momentum, draw=draw).double()
    bank.entries.copy_(unit(n, dim, seed=1))
    return bank


def test_it_starts_with_random_unit_vectors() -> None:
    entries = MemoryBank(50, 8, momentum=0.5, draw=4).entries
    assert torch.allclose(entries.norm(dim=1), torch.ones(50), atol=1e-6)
    assert float(entries.mean(0).norm()) < 0.5


def test_draws_are_uniform_over_all_samples_but_the_own_one() -> None:
    n, count = 7, 60_000
    drawn = make(n, 2, count).drawn(torch.arange(n), seed=SEED, step=STEP)
    expected = count / (n - 1)
    for own in range(n):
        counts = drawn[own].bincount(minlength=n)
        assert counts[own] == 0
        others = counts[torch.arange(n) != own].double()
        assert float(((others - expected) ** 2 / expected).sum()) < 25  # χ² with n - 2 = 5 degrees: p = 1e-4


def test_a_large_bank_is_reached_everywhere() -> None:
    """Draws of 24 bits would reach an eighth of these entries at most."""
    bank = make(2, 1, 40_000)
    bank.entries = bank.entries[:1].expand(2**27, 1)
    drawn = bank.drawn(torch.tensor([5]), seed=SEED, step=STEP)[0]
    assert drawn.unique().numel() > 0.999 * 40_000
    assert drawn.remainder(8).bincount(minlength=8).min() > 4_500


def test_the_smallest_bank_draws_the_only_other_sample() -> None:
    assert make(2, 3, 4).drawn(torch.tensor([0, 1]), seed=0, step=0).tolist() == [[1] * 4, [0] * 4]


def test_draws_depend_on_seed_step_direction_and_sample_and_on_nothing_else() -> None:
    bank = make(1000, 2, 6)
    index = torch.tensor([4, 17, 900])
    words = [{"seed": a, "step": b, "direction": c} for a, b, c in itertools.product((0, 1), (0, 1), (0, 1))]
    draws = [bank.drawn(index, **each) for each in words]
    for (i, one), (j, other) in itertools.combinations(enumerate(draws), 2):
        assert not torch.equal(one, other), (words[i], words[j])
    assert torch.equal(bank.drawn(index[[2]], **words[3]), draws[3][[2]])
    assert torch.equal(make(1000, 2, 3).drawn(index, **words[3]), draws[3][:, :3])


@pytest.mark.parametrize(
    ("n", "dim", "draw", "queries"),
    [
        (20, 3, 50, 6),  # few rows per draw
        (300, 3, 30, 6),  # many for the backward pass
        (900, 3, 30, 6),  # many for both
        (90, 8, 4000, 40),  # queries in several parts
        (70_000, 128, 4000, 35),  # and the draws of each query
    ],
)
def test_scores_and_gradients_equal_those_of_gathered_entries(n: int, dim: int, draw: int, queries: int) -> None:
    bank, index = make(n, dim, draw), torch.arange(queries) % 11
    query, weights = unit(queries, dim).requires_grad_(), unit(queries, draw, seed=2)
    scores = bank.similarity(query, index, seed=SEED, step=STEP)
    (gradient,) = torch.autograd.grad((scores * weights).sum(), query)
    drawn = bank.drawn(index, seed=SEED, step=STEP)
    for i in range(queries):
        rows = bank.entries[drawn[i]]
        assert torch.allclose(scores[i], rows @ query[i], atol=1e-12)
        assert torch.allclose(gradient[i], weights[i] @ rows, atol=1e-12)


@pytest.mark.parametrize("n", [10, 200])
def test_gradients_pass_gradcheck(n: int) -> None:
    bank, index, query = make(n, 3, 4), torch.tensor([1, 5]), unit(2, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda q: bank.similarity(q, index, seed=SEED, step=STEP), query)
    assert torch.autograd.gradcheck(lambda q: bank.positives(q, index), query)


def test_the_gradient_of_a_plain_sum_arrives() -> None:
    """Its gradient is one number, expanded."""
    bank, query = make(500, 3, 4), unit(2, 3).requires_grad_()
    bank.similarity(query, torch.tensor([0, 1]), seed=0, step=0).sum().backward()
    assert query.grad is not None
    assert torch.allclose(query.grad, bank.entries[bank.drawn(torch.tensor([0, 1]), seed=0, step=0)].sum(1))


def test_positives_are_the_entries_of_the_samples_themselves() -> None:
    bank, query = make(9, 4, 2), unit(3, 4)
    scores = bank.positives(query, torch.tensor([8, 0, 4]))
    assert scores.shape == (3, 1)
    for i, sample in enumerate([8, 0, 4]):
        assert float(scores[i, 0]) == pytest.approx(float(query[i] @ bank.entries[sample]), abs=1e-12)


def test_half_precision_is_raised_and_autocast_changes_nothing() -> None:
    bank, query, index = MemoryBank(500, 8, momentum=0.5, draw=6), unit(3, 8).float(), torch.arange(3)
    exact = bank.similarity(query, index, seed=0, step=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(bank.similarity(query, index, seed=0, step=0), exact)
    half = query.bfloat16().requires_grad_()
    scores = bank.similarity(half, index, seed=0, step=0)
    scores.sum().backward()
    assert scores.dtype == torch.float32
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("n", [20, 300, 900])
def test_entries_of_samples_without_the_view_are_excluded(n: int) -> None:
    bank, index = make(n, 3, 30), torch.arange(6)
    there, drawn = torch.arange(n) % 3 != 0, bank.drawn(index, seed=SEED, step=STEP)
    query, weights = unit(6, 3).requires_grad_(), unit(6, 30, seed=2)
    scores = bank.similarity(query, index, seed=SEED, step=STEP, there=there)
    all_scores = bank.similarity(query, index, seed=SEED, step=STEP)
    assert torch.equal(scores, all_scores.masked_fill(~there[drawn], -torch.inf))
    (gradient,) = torch.autograd.grad(scores, query, weights)
    for i in range(6):
        met = there[drawn[i]]
        assert torch.allclose(gradient[i], weights[i, met] @ bank.entries[drawn[i, met]], atol=1e-12)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n", [20_000, 300_000])
def test_scoring_and_learning_take_less_than_three_score_matrices(n: int, missing: bool) -> None:
    queries, draw, dim = 256, 16_384, 128
    there = torch.arange(n) % 2 == 0 if missing else None
    bank = MemoryBank(n, dim, momentum=0.5, draw=draw)
    query, index = normalize(torch.randn(queries, dim)).requires_grad_(), torch.arange(queries)

    def learn() -> None:
        negatives = bank.similarity(query, index, seed=SEED, step=STEP, there=there)
        info_nce(bank.positives(query, index), negatives, temperature=0.07).backward()

    assert peak_memory(learn) < 3 * 4 * queries * draw


def test_push_moves_the_entries_of_the_batch_and_no_others() -> None:
    bank, keys = make(9, 4, 2, momentum=0.3), unit(2, 4)
    before = bank.entries.clone()
    bank.push(keys, torch.tensor([7, 2]))
    for sample in range(9):
        old = before[sample]
        if sample in (7, 2):
            moved = 0.3 * old + 0.7 * keys[[7, 2].index(sample)]
            old = moved / moved.norm()
        assert torch.allclose(bank.entries[sample], old, atol=1e-12)


def test_of_several_keys_of_a_sample_the_last_counts() -> None:
    bank, twin, keys = make(9, 4, 2), make(9, 4, 2), unit(5, 4)
    bank.push(keys, torch.tensor([6, 1, 6, 1, 3]))
    twin.push(keys[2:], torch.tensor([6, 1, 3]))
    assert torch.equal(bank.entries, twin.entries)


def test_samples_without_the_view_leave_their_entries_alone() -> None:
    bank, twin, keys = make(9, 4, 2), make(9, 4, 2), unit(3, 4)
    keys[1] = torch.nan
    bank.push(keys, torch.tensor([6, 1, 3]), present=torch.tensor([True, False, True]))
    twin.push(keys[[0, 2]], torch.tensor([6, 3]))
    assert torch.equal(bank.entries, twin.entries)
    bank.push(keys, torch.tensor([6, 1, 3]), present=torch.zeros(3, dtype=torch.bool))
    assert torch.equal(bank.entries, twin.entries)


@pytest.mark.parametrize("n", [20, 2000])
def test_a_push_before_the_backward_pass_is_refused(n: int) -> None:
    """Draws are scored anew there: a changed bank would give a wrong gradient in silence."""
    bank, query, index = make(n, 4, 10), unit(2, 4).requires_grad_(), torch.tensor([0, 1])
    scores = bank.similarity(query, index, seed=0, step=0)
    bank.push(query.detach(), index)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scores.sum().backward()


def test_the_state_is_the_entries_and_flags_decide_the_rest() -> None:
    old, new = make(9, 4, 2), MemoryBank(9, 4, momentum=0.9, draw=7).double()
    assert set(old.state_dict()) == {"entries"}
    new.load_state_dict(old.state_dict())
    assert torch.equal(old.entries, new.entries)
    assert (new.momentum, new.draw) == (0.9, 7)


@pytest.mark.parametrize("sample", [-1, 9])
def test_sample_numbers_out_of_range_are_refused(sample: int) -> None:
    bank, query, index = make(9, 4, 2), unit(2, 4), torch.tensor([0, sample])
    for call in (
        lambda: bank.similarity(query, index, seed=0, step=0),
        lambda: bank.positives(query, index),
        lambda: bank.push(query, index),
    ):
        with pytest.raises(ValueError, match=f"0 to 8, not {min(0, sample)} to {max(0, sample)}"):
            call()


@pytest.mark.parametrize(
    ("n", "momentum", "draw", "message"),
    [(1, 0.5, 4, "at least 2"), (9, 0.5, 0, "at least one"), (9, 1.0, 4, "momentum"), (9, -0.1, 4, "momentum")],
)
def test_impossible_banks_are_refused(n: int, momentum: float, draw: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MemoryBank(n, 4, momentum=momentum, draw=draw)


@pytest.mark.parametrize("n", [12, 400])  # all rows are scored, or the drawn ones alone
@pytest.mark.parametrize("lacking", [False, True])
def test_drawn_entries_of_the_anchors_group_are_excluded(n: int, lacking: bool) -> None:
    bank, groups, index = make(n, 3, 9), torch.arange(n) // 4, torch.tensor([1, 6, 7])
    bank.know_groups(groups)
    assert "groups" not in bank.state_dict()
    there = torch.arange(n) % 5 != 2 if lacking else None
    query = unit(3, 3, seed=4).requires_grad_()
    scores = bank.similarity(query, index, seed=SEED, step=STEP, there=there)
    drawn = bank.drawn(index, seed=SEED, step=STEP)
    gradient, masked = torch.zeros_like(query), 0
    for i, own in enumerate(index.tolist()):
        for k, j in enumerate(drawn[i].tolist()):
            out = bool(groups[j] == groups[own]) or (there is not None and not there[j])
            masked += out
            expected = -torch.inf if out else float(query[i].detach() @ bank.entries[j])
            assert float(scores[i, k].detach()) == pytest.approx(expected, abs=1e-12)
            if not out:
                gradient[i] += bank.entries[j]
    assert masked or n == 400
    scores.masked_fill(scores == -torch.inf, 0.0).sum().backward()
    assert query.grad is not None
    assert torch.allclose(query.grad, gradient, atol=1e-12)
