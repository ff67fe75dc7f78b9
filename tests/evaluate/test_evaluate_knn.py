"""The weighted vote of the nearest neighbours."""

import math

import numpy as np
import pytest
import torch

from manyview import counter
from manyview.errors import UserError
from manyview.evaluate.features import Features
from manyview.evaluate.knn import Knn, _largest, class_scores, nearest
from manyview.evaluate.score import share_right

torch.set_num_threads(1)


def blobs(count: int, classes: int, *, seed: int, dim: int = 12, spread: float = 1.0) -> Features:
    """Overlapping clusters; the centres are the same for every seed."""
    labels = counter.bits(seed, 1, torch.arange(count)) % classes
    centres = counter.normal(99, torch.arange(classes * dim).view(classes, dim))
    noise = counter.normal(seed, 2, torch.arange(count * dim).view(count, dim))
    return Features(centres[labels] + spread * noise, labels, torch.arange(count))


def naive_votes(train: Features, test: Features, k: int, temperature: float, classes: int) -> np.ndarray:
    bank, queries = train.embeddings.double().numpy(), test.embeddings.double().numpy()
    votes = np.zeros((len(queries), classes))
    for i, query in enumerate(queries):
        similarity = [row @ query / (np.linalg.norm(row) * np.linalg.norm(query)) for row in bank]
        for j in np.argsort(similarity)[::-1][:k]:
            votes[i, train.labels[j]] += math.exp(similarity[j] / temperature)
    return votes


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.07), (7, 0.07), (30, 0.5), (30, 0.02)])
def test_agrees_with_a_naive_loop(k: int, temperature: float) -> None:
    train, test = blobs(150, 8, seed=1, spread=2.0), blobs(60, 8, seed=2, spread=2.0)
    votes = naive_votes(train, test, k, temperature, 8)
    scores = class_scores(train, test, Knn(k, temperature))
    np.testing.assert_allclose(scores.exp().numpy(), votes, rtol=1e-4)
    score = Knn(k, temperature).score(train, test)
    labels = test.labels.numpy()
    best = np.argsort(-votes, axis=1, kind="stable")
    assert score.value == pytest.approx((best[:, 0] == labels).mean())
    found = [label in best[i, :5] and votes[i, label] > 0 for i, label in enumerate(labels)]
    assert score.metrics["top-5"].value == pytest.approx(np.mean(found))
    assert 0.2 < score.value < 1


def test_more_neighbours_than_samples_means_all_samples() -> None:
    train, test = blobs(20, 3, seed=1), blobs(15, 3, seed=2)
    score = Knn(200).score(train, test)
    assert score == Knn(20).score(train, test)
    assert score.facts["k"] == 20


def test_class_missing_from_the_test_set_changes_nothing() -> None:
    train, test = blobs(100, 4, seed=1), blobs(50, 4, seed=2)
    some = test.labels < 2
    fewer = Features(test.embeddings[some], test.labels[some], test.index[some])
    scores = class_scores(train, test, Knn(9))
    assert torch.equal(class_scores(train, fewer, Knn(9)), scores[some])


def test_class_missing_from_the_training_set_is_a_miss_and_no_error() -> None:
    train, test = blobs(100, 4, seed=1), blobs(50, 7, seed=2)
    score = Knn(9).score(train, test)
    known = test.labels < 4
    alone = Knn(9).score(train, Features(test.embeddings[known], test.labels[known], test.index[known]))
    assert score.facts["classes"] == 7
    assert score.value == pytest.approx(alone.value * known.double().mean().item())
    assert class_scores(train, test, Knn(9))[:, 4:].eq(-torch.inf).all()


def test_equal_votes_go_to_the_lower_class_number_whatever_the_chunks() -> None:
    train = Features(torch.eye(2), torch.tensor([1, 0]), torch.arange(2))
    test = Features(torch.ones(4, 2), torch.tensor([0, 0, 0, 1]), torch.arange(4))
    for chunk in (1, 3, 256):
        assert share_right(class_scores(train, test, Knn(2), chunk=chunk), test.labels) == 0.75


@pytest.mark.parametrize("temperature", [1e-8, 1e-4, 1e6])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    train, test = blobs(80, 6, seed=1), blobs(40, 6, seed=2)
    scores = class_scores(train, test, Knn(80, temperature))
    assert scores.isfinite().all()  # with k = n every class has a neighbour
    if temperature < 1:
        assert torch.equal(scores.argmax(1), class_scores(train, test, Knn(1)).argmax(1))
    else:
        assert (scores.argmax(1) == train.labels.bincount().argmax()).all()


@pytest.mark.parametrize("block", [7, 64, 100])
def test_training_samples_scored_in_blocks_give_the_same_neighbours(block: int) -> None:
    train, test = blobs(150, 5, seed=1).embeddings, blobs(30, 5, seed=2).embeddings
    whole = nearest(test, train, 20)
    parts = nearest(test, train, 20, block=block)
    assert torch.equal(whole[1].sort().values, parts[1].sort().values)
    torch.testing.assert_close(whole[0].sort().values, parts[0].sort().values)


@pytest.mark.parametrize("columns", [1600, 1607, 6400, 6415])
@pytest.mark.parametrize("levels", [None, 50])
def test_grouped_selection_is_exactly_topk(columns: int, levels: int | None) -> None:
    rows = counter.uniform(7, torch.arange(20 * columns).view(20, columns))
    if levels:  # many equal entries
        rows = (rows * levels).floor()
    rows[0] = rows[0].sort().values  # the best side by side
    rows[1] = rows[1].sort(descending=True).values
    for k in (1, 10, 50):
        values, index = _largest(rows, k)
        assert torch.equal(values.sort().values, rows.topk(k).values.sort().values)
        assert torch.equal(rows.gather(1, index), values)
        assert all(len(set(row)) == k for row in index.tolist())


def test_scale_of_the_features_does_not_matter() -> None:
    train, test = blobs(100, 4, seed=1), blobs(50, 4, seed=2)
    scaled = Features(train.embeddings * torch.linspace(0.1, 10, 100)[:, None], train.labels, train.index)
    assert Knn(11).score(scaled, test).value == Knn(11).score(train, test).value


def test_there_is_no_top_5_of_few_classes() -> None:
    assert list(Knn().score(blobs(40, 3, seed=1), blobs(20, 3, seed=2)).metrics) == ["top-1"]


@pytest.mark.parametrize(("k", "temperature", "flag"), [(0, 0.07, "--k"), (5, 0.0, "--temperature"), (5, -1, "--temp")])
def test_impossible_settings_name_the_flag(k: int, temperature: float, flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        Knn(k, temperature)
