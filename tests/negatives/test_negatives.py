"""What a negative source offers, hides, keeps and forgets."""

import pytest
import torch
from torch.nn.functional import normalize

from manyview.negatives import InBatch, Queue


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.mark.parametrize(("scope", "seen"), [("same", [1]), ("other", [0, 2]), ("all", [0, 1, 2])])
def test_in_batch_scopes_offer_their_views_and_mask_the_sample_itself(scope: str, seen: list[int]) -> None:
    views = unit(3, 5, 4)
    scores = InBatch(scope).similarity(views[1], views, view=1)  # type: ignore[arg-type]
    assert scores.shape == (5, 5 * len(seen))
    for i in range(5):
        for place, v in enumerate(seen):
            for j in range(5):
                value = float(scores[i, place * 5 + j])
                expected = -torch.inf if i == j else float(views[1, i] @ views[v, j])
                assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("scope", "seen"), [("same", [1]), ("other", [0, 2]), ("all", [0, 1, 2])])
def test_rows_of_one_owner_are_masked_for_each_other(scope: str, seen: list[int]) -> None:
    """A sample that stands in for an unreadable one, or another of the same group; on any rank."""
    views, owner = unit(3, 5, 4).double(), [8, 2, 8, 5, 2]
    for offset, n in ((0, 5), (2, 2)):
        rows = slice(offset, offset + n)
        scores = InBatch(scope).similarity(  # type: ignore[arg-type]
            views[1, rows], views, view=1, offset=offset, owner=torch.tensor(owner)
        )
        for i in range(n):
            for place, v in enumerate(seen):
                for j in range(5):
                    expected = (
                        -torch.inf if owner[offset + i] == owner[j] else float(views[1, offset + i] @ views[v, j])
                    )
                    assert float(scores[i, place * 5 + j]) == pytest.approx(expected, abs=1e-12)


def test_keys_of_the_querys_group_are_always_masked() -> None:
    groups = torch.tensor([0, 0, 1, 1, 2, 0])
    queue, plain = Queue(7, 4), Queue(7, 4)
    queue.know_groups(groups)
    assert queue.state_dict().keys() == plain.state_dict().keys(), "the data tells the groups anew"
    keys, owners, query, index = unit(5, 4), torch.tensor([0, 1, 2, 4, 5]), unit(3, 4, seed=2), torch.tensor([1, 3, 4])
    queue.push(keys, owners)
    scores = queue.similarity(query, index)
    for i, own in enumerate(index.tolist()):
        for j in range(7):
            alike = j < 5 and groups[owners[j]] == groups[own]  # a random key is nobody's
            expected = -torch.inf if alike else float(query[i] @ queue.keys[j])
            assert float(scores[i, j]) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="sample numbers"):
        queue.similarity(query)


def test_in_batch_passes_gradients_to_query_and_negatives() -> None:
    views = unit(2, 4, 3).double().requires_grad_()

    def total(v: torch.Tensor) -> torch.Tensor:
        scores = InBatch("all").similarity(v[0], v, view=0)
        return torch.where(scores.isinf(), 0.0, scores).exp().sum()

    assert torch.autograd.gradcheck(total, views)


def test_unknown_scopes_are_refused() -> None:
    with pytest.raises(ValueError, match="scope"):
        InBatch("own")  # type: ignore[arg-type]


def test_a_queue_starts_with_random_unit_vectors() -> None:
    queue = Queue(64, 8)
    assert torch.allclose(queue.keys.norm(dim=1), torch.ones(64), atol=1e-6)
    assert queue.similarity(unit(3, 8)).isfinite().all()


@pytest.mark.parametrize("batch", [1, 3, 4, 7, 10, 11, 25])
def test_a_queue_keeps_the_newest_keys_for_any_batch_size(batch: int) -> None:
    """Against a plain list; wrap-around must not drop the tail of a batch."""
    queue, history = Queue(10, 2), []
    for start in range(0, 60, batch):
        numbers = torch.arange(start, start + batch)
        queue.push(torch.stack([numbers.float(), numbers.float()], 1), numbers)
        history += numbers.tolist()
        kept = sorted(history[-10:])
        assert sorted(queue.owner[queue.owner >= 0].tolist()) == kept
        assert sorted(queue.keys[queue.owner >= 0, 0].tolist()) == kept
        assert torch.equal(queue.keys[queue.owner >= 0, 0].long(), queue.owner[queue.owner >= 0])


def test_unfilled_slots_are_masked_when_the_queue_starts_empty() -> None:
    queue, q = Queue(6, 4, start="empty"), unit(2, 4)
    assert (queue.similarity(q) == -torch.inf).all()
    keys = unit(4, 4, seed=1)
    queue.push(keys)
    scores = queue.similarity(q)
    assert torch.allclose(scores[:, :4], q @ keys.T, atol=1e-6)
    assert (scores[:, 4:] == -torch.inf).all()
    queue.push(keys)
    assert queue.similarity(q).isfinite().all()


def test_own_old_keys_are_masked_on_request() -> None:
    queue = Queue(6, 4, mask_own=True)
    queue.push(unit(4, 4), torch.tensor([10, 11, 12, 10]))
    scores = queue.similarity(unit(2, 4, seed=2), torch.tensor([10, 99]))
    assert (scores[0] == -torch.inf).tolist() == [True, False, False, True, False, False]
    assert scores[1].isfinite().all()
    with pytest.raises(ValueError, match="sample numbers"):
        queue.similarity(unit(2, 4))


def test_mean_keys_are_kept_as_they_are() -> None:
    queue, means = Queue(4, 3), 0.5 * unit(2, 3)
    queue.push(means)
    assert torch.equal(queue.keys[:2], means)


def test_content_and_position_survive_a_state_dict() -> None:
    old = Queue(5, 3, mask_own=True)
    old.push(unit(3, 3), torch.arange(3))
    new = Queue(5, 3, mask_own=True)
    new.load_state_dict(old.state_dict())
    for queue in (old, new):
        queue.push(unit(4, 3, seed=5), torch.arange(3, 7))
    assert torch.equal(old.keys, new.keys)
    assert torch.equal(old.owner, new.owner)
    assert int(new.pushed) == 7


def test_hyper_parameters_are_not_in_the_state_so_that_flags_decide() -> None:
    assert set(Queue(5, 3).state_dict()) == {"keys", "owner", "pushed"}
