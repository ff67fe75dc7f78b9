"""Logistic regression on cached features."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

from manyview import counter
from manyview.errors import UserError
from manyview.evaluate.features import Features
from manyview.evaluate.linear import Linear, _validation, fit

torch.set_num_threads(1)


def blobs(count: int, classes: int, *, seed: int, dim: int = 10, spread: float = 1.0) -> Features:
    """Overlapping clusters with features of different scales; the centres are the same for every seed."""
    labels = counter.bits(seed, 1, torch.arange(count)) % classes
    centres = counter.normal(99, torch.arange(classes * dim).view(classes, dim))
    noise = counter.normal(seed, 2, torch.arange(count * dim).view(count, dim))
    scale = torch.logspace(-1, 1, dim)
    return Features((centres[labels] + spread * noise) * scale + 3, labels, torch.arange(count))


@pytest.mark.parametrize("penalty", [1.0, 0.01, 1e-4])
def test_fit_agrees_with_scikit_learn(penalty: float) -> None:
    train = blobs(300, 4, seed=1)
    x = StandardScaler().fit_transform(train.embeddings.double().numpy())
    inputs = F.pad(torch.from_numpy(x), (0, 1), value=1.0)
    weights = fit(inputs, train.labels, 4, penalty, iterations=2000)
    theirs = LogisticRegression(C=1 / (penalty * len(x)), tol=1e-10, max_iter=10_000).fit(x, train.labels.numpy())
    np.testing.assert_allclose(weights[:-1].T.numpy(), theirs.coef_, atol=1e-3)
    ours = torch.softmax(inputs @ weights, 1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(x), atol=1e-4)


def test_accuracy_agrees_with_scikit_learn() -> None:
    train, test = blobs(400, 7, seed=1, spread=2.0), blobs(500, 7, seed=2, spread=2.0)
    score = Linear().score(train, test)
    scaler = StandardScaler().fit(train.embeddings.numpy())
    theirs = LogisticRegression(C=1 / (score.facts["regularisation"] * len(train)), tol=1e-8, max_iter=10_000)
    theirs.fit(scaler.transform(train.embeddings.numpy()), train.labels.numpy())
    expected = theirs.score(scaler.transform(test.embeddings.numpy()), test.labels.numpy())
    assert score.value == pytest.approx(expected, abs=0.003)
    assert 0.3 < score.value < 0.95
    assert score.metrics["top-5"].value > score.value


def test_accuracy_on_the_training_samples_tells_what_was_learnt_by_heart() -> None:
    train, test = (blobs(count, 3, seed=seed, dim=400, spread=12.0) for count, seed in ((300, 1), (2000, 2)))
    heart, twice = Linear((1e-6,)).score(train, test), Linear((1.0,)).score(train, train)
    assert heart.facts["fitted"] == 1
    assert heart.value < 0.8
    assert twice.facts["fitted"] == pytest.approx(twice.value)
    assert twice.facts["fitted"] != heart.facts["fitted"]


def test_regularisation_is_chosen_without_the_test_set() -> None:
    train, test = blobs(300, 4, seed=1, spread=3.0), blobs(200, 4, seed=2, spread=3.0)
    wrong = replace(test, labels=(test.labels + 1) % 4)
    noise = replace(test, embeddings=100 * test.embeddings.flip(0))
    chosen = {Linear().score(train, each).facts["regularisation"] for each in (test, wrong, noise)}
    assert len(chosen) == 1


def test_regularisation_helps_where_features_outnumber_samples() -> None:
    train, test = (blobs(count, 3, seed=seed, dim=400, spread=12.0) for count, seed in ((300, 1), (2000, 2)))
    chosen, none = Linear().score(train, test), Linear((1e-9,)).score(train, test)
    assert chosen.facts["regularisation"] > 1e-3
    assert chosen.value > none.value


def test_final_fit_uses_the_whole_training_set_and_not_the_path_to_it() -> None:
    train, test = blobs(300, 4, seed=1, spread=2.0), blobs(400, 4, seed=2, spread=2.0)
    score = Linear().score(train, test)
    assert score == Linear((score.facts["regularisation"],)).score(train, test)
    assert score.facts["train_samples"] == 300


def test_same_input_same_result_in_any_order_of_the_grid() -> None:
    train, test = blobs(200, 4, seed=1, spread=2.0), blobs(100, 4, seed=2, spread=2.0)
    assert Linear((1, 0.1, 0.01)).score(train, test) == Linear((0.01, 1, 0.1)).score(train, test)


def test_class_without_training_samples_is_never_predicted() -> None:
    train, test = blobs(200, 6, seed=1), blobs(200, 6, seed=2)
    kept = train.labels != 2
    fewer = Features(train.embeddings[kept], train.labels[kept], train.index[kept])
    score = Linear().score(fewer, test)
    rest = test.labels != 2
    alone = Linear().score(fewer, Features(test.embeddings[rest], test.labels[rest], test.index[rest]))
    assert score.facts["classes"] == 6
    assert alone.value > 0.8  # the numbers of the classes above the gap do not shift
    assert score.value == pytest.approx(alone.value * rest.double().mean().item())


def test_constant_feature_does_no_harm() -> None:
    train, test = blobs(200, 3, seed=1), blobs(100, 3, seed=2)
    padded, padded_test = (
        replace(each, embeddings=F.pad(each.embeddings, (0, 1), value=5.0)) for each in (train, test)
    )
    assert Linear().score(padded, padded_test).value == Linear().score(train, test).value


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"regularisation": ()}, "--regularisation needs at least one number"),
        ({"regularisation": (0.1, -0.1)}, "--regularisation -0.1 must not be negative"),
        ({"validation": 1.0}, "--validation 1 must be at least 0 and less than 1"),
        ({"validation": 0.0}, "--validation 0 must be greater than 0"),
    ],
)
def test_impossible_settings_name_the_flag(settings: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Linear(**settings)  # type: ignore[arg-type]


def test_one_training_sample_is_too_few_to_choose() -> None:
    with pytest.raises(UserError, match="too few"):
        Linear().score(blobs(1, 2, seed=1), blobs(5, 2, seed=2))


@pytest.mark.parametrize("seed", range(5))
def test_no_group_is_on_both_sides_where_the_regularisation_is_chosen(seed: int) -> None:
    groups = counter.bits(3, torch.arange(300)) % 40
    train = replace(blobs(300, 4, seed=1), groups=groups)
    held_out, rest = _validation(train, 0.2, seed)
    assert sorted([*held_out.tolist(), *rest.tolist()]) == list(range(300))
    assert not set(groups[held_out].tolist()) & set(groups[rest].tolist())
    assert 0.2 <= len(held_out) / 300 < 0.3


def test_groups_change_the_choice_alone_and_one_group_cannot_be_cut() -> None:
    train, test = blobs(300, 4, seed=1, spread=3.0), blobs(200, 4, seed=2, spread=3.0)
    grouped = replace(train, groups=torch.arange(300) // 3)
    assert Linear((0.1,)).score(grouped, test) == Linear((0.1,)).score(train, test)
    with pytest.raises(UserError, match="--regularisation: too few training groups"):
        Linear().score(replace(train, groups=torch.zeros(300, dtype=torch.int64)), test)
