"""Top-1, top-5 and their intervals."""

import pytest
import torch
from torch import Tensor

from manyview import counter
from manyview.evaluate.result import Result
from manyview.evaluate.score import accuracy, bootstrap, ranks


def judged(scores: Tensor, labels: Tensor) -> Result:
    return accuracy(scores, labels, train_samples=1)


def test_ranks_agree_with_a_stable_sort() -> None:
    scores = (4 * counter.uniform(1, torch.arange(60).view(12, 5))).floor()  # many ties
    labels = counter.bits(2, torch.arange(12)) % 5
    for row, label, rank in zip(scores.tolist(), labels.tolist(), ranks(scores, labels).tolist(), strict=True):
        order = sorted(range(5), key=lambda c: -row[c])  # Python's sort is stable: lower numbers first among equals
        assert order.index(label) == rank


def test_a_class_without_any_vote_is_never_among_the_first_five() -> None:
    scores = torch.full((1, 10), -torch.inf)
    scores[0, 9] = 0.0
    assert ranks(scores, torch.tensor([0])).item() == 10
    assert ranks(scores, torch.tensor([9])).item() == 0


def test_scores_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="not numbers"):
        ranks(torch.full((2, 3), torch.nan), torch.tensor([0, 1]))


def test_top_5_needs_more_than_five_classes() -> None:
    labels = torch.tensor([0, 1, 2, 3])
    five, six = judged(torch.eye(5)[:4], labels), judged(torch.eye(6)[:4], labels)
    assert list(five.metrics) == ["top-1"]
    assert list(six.metrics) == ["top-1", "top-5"]
    assert all((each.value, each.interval, each.unit) == (1.0, (1.0, 1.0), "%") for each in six.metrics.values())
    assert (six.headline, six.facts) == ("top-1", {"train_samples": 1, "test_samples": 4, "classes": 6})


def test_top_1_and_top_5_count_the_right_places() -> None:
    scores = -torch.arange(7.0).expand(7, 7)
    score = judged(scores, torch.arange(7))
    assert score.value == pytest.approx(1 / 7)
    assert score.metrics["top-5"].value == pytest.approx(5 / 7)


def test_interval_is_the_same_every_time_and_depends_on_the_seed() -> None:
    values = (counter.uniform(3, torch.arange(200)) < 0.6).double()[:, None]
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values, seed=1) != bootstrap(values)


def test_interval_holds_the_true_share_about_95_times_in_100() -> None:
    share, covered, sets = 0.7, 0, 400
    for number in range(sets):
        hits = (counter.uniform(4, number, torch.arange(150)) < share).double()[:, None]
        low, high = bootstrap(hits, seed=number, resamples=200)[0]
        covered += low <= share <= high
    assert 0.91 < covered / sets < 0.98


def test_interval_narrows_with_the_root_of_the_number_of_samples() -> None:
    def width(count: int) -> float:
        low, high = bootstrap((counter.uniform(5, torch.arange(count)) < 0.5).double()[:, None])[0]
        return high - low

    assert width(400) / width(6400) == pytest.approx(4, rel=0.15)
