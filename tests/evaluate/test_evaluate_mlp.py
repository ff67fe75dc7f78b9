"""The classifier with one hidden layer."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import counter
from manyview.errors import UserError
from manyview.evaluate.features import Features
from manyview.evaluate.linear import Linear
from manyview.evaluate.mlp import ORDER_TAG, Mlp

torch.set_num_threads(1)


def features(count: int, *, seed: int, classes: int = 2) -> Features:
    """Two numbers whose signs decide the class together: no line parts them. The scales of the columns differ."""
    points = counter.normal(seed, torch.arange(count * 2)).view(count, 2)
    labels = ((points[:, 0] > 0) ^ (points[:, 1] > 0)).long() + classes - 2
    return Features(points * torch.tensor([1000.0, 0.001]), labels, torch.arange(count), preprocess="as stored")


def test_it_finds_what_a_line_cannot() -> None:
    train, test = features(600, seed=1), features(400, seed=2)
    score = Mlp(epochs=30).score(train, test)
    assert Linear((1e-3,)).score(train, test).value < 0.65
    assert score.value > 0.9
    assert score.facts.items() >= {"train_samples": 600, "test_samples": 400, "classes": 2}.items()
    assert score.preprocess == "as stored"
    assert Mlp(epochs=30).settings == {
        **{"hidden": 200, "dropout": 0.1, "epochs": 30, "lr": 0.001, "decay": 0.2},
        **{"milestones": [0.6, 0.8], "batch_size": 64},
    }


def written_out(train: Features, test: Features, epochs: int, batch: int) -> Tensor:
    """The protocol once more, plainly."""
    torch.manual_seed(5)
    network = nn.Sequential(
        nn.Linear(2, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Dropout(0.1), nn.Linear(200, len(train.labels.unique()))
    )
    mean, deviation = train.embeddings.mean(0), train.embeddings.std(0, correction=0)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, betas=(0.5, 0.999))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [round(0.6 * epochs), round(0.8 * epochs)], 0.2)
    for epoch in range(epochs):
        order = counter.permutation(len(train), 5, ORDER_TAG, epoch).tolist()
        while len(order) >= batch:
            now, order = order[:batch], order[batch:]
            loss = F.cross_entropy(network((train.embeddings[now] - mean) / deviation), train.labels[now])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        return network.eval()((test.embeddings - mean) / deviation).argmax(1)  # type: ignore[no-any-return]


def test_agrees_with_the_protocol_written_out() -> None:
    train, test = features(70, seed=1), features(500, seed=2)
    expected = (written_out(train, test, epochs=10, batch=16) == test.labels).double().mean().item()
    assert Mlp(epochs=10, batch_size=16).score(train, test, seed=5).value == pytest.approx(expected)
    assert Mlp(epochs=10, batch_size=16).score(test, train, seed=5).facts["fitted"] == pytest.approx(
        (written_out(test, test, epochs=10, batch=16) == test.labels).double().mean().item()
    )
    protocols = Mlp(epochs=9, batch_size=16), Mlp(10, decay=1.0, batch_size=16), Mlp(epochs=10, batch_size=24)
    others = {protocol.score(train, test, seed=5).value for protocol in protocols}
    assert expected not in others  # otherwise this test could not fail


def test_the_same_seed_gives_the_same_score_and_leaves_the_random_state_alone() -> None:
    train, test = features(60, seed=1), features(300, seed=2)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one, same, other = (Mlp(epochs=3).score(train, test, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert one == same
    assert one.value != other.value


def test_fewer_samples_than_a_step_are_one_step() -> None:
    train, test = features(10, seed=1), features(20, seed=2, classes=4)  # classes that the training set has not
    assert Mlp(epochs=2).score(train, test).facts["classes"] == 4


def test_settings_are_those_of_the_paper() -> None:
    protocol = Mlp()
    assert (protocol.epochs, protocol.batch_size, protocol.hidden) == (100, 64, 200)
    rates = [protocol.lr_at(epoch) for epoch in (0, 59, 60, 79, 80, 99)]
    assert rates == pytest.approx([1e-3, 1e-3, 2e-4, 2e-4, 4e-5, 4e-5])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": 0}, "--hidden 0 must be at least 1"),
        ({"dropout": 1.0}, "--dropout 1 must be at least 0 and less than 1"),
        ({"dropout": float("nan")}, "--dropout nan must be a finite number"),
        ({"batch_size": 0}, "--batch-size 0 must be at least 1"),
        ({"epochs": 0}, "--epochs 0 must be at least 1"),
        ({"lr": -1.0}, "--lr -1 must be greater than 0"),
        ({"decay": 0.0}, "--decay 0 must lie above 0"),
    ],
)
def test_impossible_settings_name_the_flag(settings: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Mlp(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("samples", "batch_size"), [(1, 64), (10, 1)])
def test_a_step_of_one_sample_names_the_flag(samples: int, batch_size: int) -> None:
    with pytest.raises(UserError, match="--batch-size 64 and more samples"):
        Mlp(batch_size=batch_size).score(features(samples, seed=1), features(5, seed=2))


def test_a_diverging_classifier_names_the_learning_rate() -> None:
    with pytest.raises(UserError, match="smaller --lr"):
        Mlp(epochs=9, lr=1e38, batch_size=20).score(features(40, seed=1), features(5, seed=2))
