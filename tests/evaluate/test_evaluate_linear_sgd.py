"""The papers' linear protocols."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import counter
from manyview.data.loader import Loader
from manyview.data.source import Arrays
from manyview.encoders import Card, FrozenEncoder
from manyview.errors import UserError
from manyview.evaluate.features import extract
from manyview.evaluate.linear_adam import LinearAdam
from manyview.evaluate.linear_sgd import LinearSgd
from manyview.evaluate.linear_steps import CROPS_AND_FLIPS, INIT_TAG, LinearSteps
from manyview.evaluate.protocol import Reading
from manyview.evaluate.result import Result
from manyview.evaluate.split import Split
from manyview.views.augment import Augment

torch.set_num_threads(1)
SIZE = 8


class Tinted(Arrays):
    """Noisy images whose colour tells the class, more or less; notes when its images are asked for."""

    def __init__(self, count: int, *, seed: int, classes: int = 7, log: list[str] | None = None) -> None:
        self.name, self.size, self.fingerprint = f"tinted {seed}", (SIZE, SIZE), str(seed)
        self.labels = counter.bits(seed, 1, torch.arange(count)) % classes
        self.classes = tuple(f"class {number}" for number in range(classes))
        tint = counter.uniform(99, torch.arange(classes * 3)).view(classes, 3)[self.labels]
        tint = tint + 0.15 * counter.normal(seed, 2, torch.arange(count * 3).view(count, 3))
        noise = counter.uniform(seed, 3, torch.arange(count * 3 * SIZE**2)).view(count, 3, SIZE, SIZE)
        self.images = (255 * (0.7 * tint[..., None, None] + 0.3 * noise).clamp(0, 1)).to(torch.uint8)
        self.arrays = {"image": self.images}
        self.log = [] if log is None else log

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        self.log.append(self.name)
        return super().batch(index)


class Moments(nn.Module):
    """Mean and spread of the channels as features; counts its first `counts` batches in a buffer."""

    num_features = 6
    seen: Tensor

    def __init__(self, counts: int = 0) -> None:
        super().__init__()
        self.counts = counts
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.seen < self.counts:
            self.seen += 1
        return self.scale * torch.cat([x.mean((2, 3)), x.std((2, 3))], 1)


def encoder(counts: int = 0) -> FrozenEncoder:
    card = Card("tiny", "standard", "batch", SIZE, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return FrozenEncoder(Moments(counts), card)


def train_linear(
    encoder: FrozenEncoder, train: Tinted, test: Tinted, protocol: LinearSteps, batch_size: int = 256
) -> Result:
    return protocol.run(encoder, Split(train, test, ""), Reading(batch_size))


Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 30.0, momentum=0.9)


def adam(parameters: Iterable[nn.Parameter], beta: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.001, betas=(beta, 0.999), eps=1e-8)


def accuracy_of_every_epoch(
    train: Tinted,
    test: Tinted,
    epochs: int,
    milestones: tuple[float, ...],
    optimizer_of: Optimizer = sgd,
    decay: float = 0.1,
) -> Iterator[float]:
    """The protocol once more, plainly, with a test after every epoch."""
    frozen, labels = encoder(), train.labels
    assert labels is not None
    classifier = nn.Linear(6, len(train.classes))
    with torch.no_grad():
        classifier.weight.copy_(0.01 * counter.normal(0, INIT_TAG, torch.arange(42)).view(7, 6))
        classifier.bias.zero_()
    optimizer = optimizer_of(classifier.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [round(share * epochs) for share in milestones], decay)
    augment = Augment(CROPS_AND_FLIPS, views=1, size=SIZE, seed=0)
    examined = extract(frozen, test)
    per_epoch = len(train) // 20
    for batch in Loader(train, batch_size=20, seed=0, stop=epochs * per_epoch):
        views = augment.apply(batch.fields, augment.plan(batch.index, batch.epoch))["image"]
        loss = F.cross_entropy(classifier(frozen(views[0])), labels[batch.index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (batch.step + 1) % per_epoch == 0:
            schedule.step()
            found = classifier(examined.embeddings).argmax(1)
            yield (found == examined.labels).double().mean().item()


@pytest.mark.parametrize("milestones", [(0.6, 0.8), ()])
def test_agrees_with_the_protocol_written_out(milestones: tuple[float, ...]) -> None:
    train, test = Tinted(120, seed=1), Tinted(200, seed=2)
    history = list(accuracy_of_every_epoch(train, test, 5, milestones))
    score = train_linear(encoder(), train, test, LinearSgd(epochs=5, milestones=milestones, batch_size=20))
    assert score.value == pytest.approx(history[-1])


def test_accuracy_on_training_samples_is_that_on_the_views_of_the_last_epoch() -> None:
    train, labels = Tinted(110, seed=1), Tinted(110, seed=1).labels
    assert labels is not None
    weight = counter.normal(0, INIT_TAG, torch.arange(42)).view(7, 6)
    augment, right = Augment(CROPS_AND_FLIPS, views=1, size=SIZE, seed=0), [0, 0]
    for batch in Loader(train, batch_size=20, seed=0, stop=2 * 5):  # the last 10 do not fill a step
        views = augment.apply(batch.fields, augment.plan(batch.index, batch.epoch))["image"][0]
        right[batch.epoch] += int(((encoder()(views) @ weight.T).argmax(1) == labels[batch.index]).sum())
    assert right[0] != right[1]  # otherwise this test could not fail
    still = LinearSgd(epochs=2, lr=1e-12, batch_size=20)
    assert train_linear(encoder(), train, train, still).facts["fitted"] == pytest.approx(right[1] / 100)


def test_adam_agrees_with_the_protocol_written_out() -> None:
    train, test = Tinted(120, seed=1), Tinted(2000, seed=2)

    def last(optimizer_of: Optimizer, decay: float) -> float:
        return list(accuracy_of_every_epoch(train, test, 10, (0.6, 0.8), optimizer_of, decay))[-1]

    score = train_linear(encoder(), train, test, LinearAdam(epochs=10, batch_size=20))
    assert score.value == pytest.approx(last(adam, 0.2))
    assert LinearAdam(epochs=10, batch_size=20).settings == {
        **{"epochs": 10, "lr": 0.001, "decay": 0.2, "batch_size": 20, "milestones": [0.6, 0.8]}
    }
    others = last(partial(adam, beta=0.9), 0.2), last(adam, 0.1), last(sgd, 0.2)
    assert score.value not in others  # otherwise this test could not fail


def test_adams_settings_are_those_of_the_paper() -> None:
    protocol = LinearAdam()
    rates = [protocol.lr_at(epoch) for epoch in (0, 59, 60, 79, 80, 99)]
    assert (protocol.epochs, protocol.batch_size, LinearSgd().batch_size) == (100, 128, 256)
    assert rates == pytest.approx([1e-3, 1e-3, 2e-4, 2e-4, 4e-5, 4e-5])
    optimizer = protocol.optimizer([torch.zeros(2, requires_grad=True)])
    assert isinstance(optimizer, torch.optim.Adam)
    group = optimizer.param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"], group["amsgrad"]) == ((0.5, 0.999), 1e-8, 0, False)


def test_reports_the_last_epoch_also_when_an_earlier_one_was_better() -> None:
    train, test = Tinted(120, seed=1), Tinted(200, seed=2)
    history = list(accuracy_of_every_epoch(train, test, 8, ()))
    assert max(history) > history[-1]  # otherwise this test could not fail
    score = train_linear(encoder(), train, test, LinearSgd(epochs=8, milestones=(), batch_size=20))
    assert score.value == pytest.approx(history[-1])


def test_nobody_looks_at_the_test_set_before_the_training_is_over() -> None:
    log: list[str] = []
    train, test = Tinted(60, seed=1, log=log), Tinted(50, seed=2, log=log)
    train_linear(encoder(), train, test, LinearSgd(epochs=3, batch_size=20), batch_size=25)
    assert log == ["tinted 1"] * 9 + ["tinted 2"] * 2


def test_learns_what_the_features_tell() -> None:
    train, test = Tinted(600, seed=1), Tinted(300, seed=2)
    score = train_linear(encoder(), train, test, LinearSgd(epochs=20, lr=1.0, batch_size=50))
    assert score.value > 0.6
    assert score.metrics["top-5"].value > score.value
    assert score.facts.items() >= {"train_samples": 600, "test_samples": 300, "classes": 7}.items()
    assert score.preprocess == "8×8 as stored; random crops and flips at training"
    assert score == train_linear(encoder(), train, test, LinearSgd(epochs=20, lr=1.0, batch_size=50))


def test_learning_rate_falls_at_60_and_80_percent_of_the_epochs() -> None:
    protocol = LinearSgd()
    rates = [protocol.lr_at(epoch) for epoch in (0, 59, 60, 79, 80, 99)]
    assert rates == pytest.approx([30, 30, 3, 3, 0.3, 0.3])
    short = LinearSgd(epochs=5, lr=10)
    assert [short.lr_at(epoch) for epoch in range(5)] == pytest.approx([10, 10, 10, 1, 0.1])


def test_views_are_crops_and_flips_and_nothing_else() -> None:
    assert (CROPS_AND_FLIPS.scale, CROPS_AND_FLIPS.flip) == ((0.08, 1.0), 0.5)
    grey = torch.full((4, 3, SIZE, SIZE), 51, dtype=torch.uint8)  # any other operation would change a plain grey
    augment = Augment(CROPS_AND_FLIPS, views=1, size=SIZE, seed=0)
    views = augment.apply({"image": grey}, augment.plan(torch.arange(4), 0))["image"]
    torch.testing.assert_close(views, torch.full_like(views, 0.2))


def test_training_mode_is_refused() -> None:
    unfrozen = encoder()
    unfrozen.backbone.train()
    with pytest.raises(RuntimeError, match="training mode"):
        train_linear(unfrozen, Tinted(40, seed=1), Tinted(20, seed=2), LinearSgd(epochs=1, batch_size=20))


def test_an_encoder_that_changes_itself_in_one_training_step_is_caught() -> None:
    with pytest.raises(RuntimeError, match="changed while it was evaluated"):
        train_linear(encoder(counts=1), Tinted(40, seed=1), Tinted(20, seed=2), LinearSgd(epochs=1, batch_size=20))


def test_a_diverging_classifier_names_the_learning_rate() -> None:
    with pytest.raises(UserError, match="smaller --lr"):
        train_linear(encoder(), Tinted(40, seed=1), Tinted(20, seed=2), LinearSgd(epochs=9, lr=3e38, batch_size=20))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "--batch-size 0 must be at least 1"),
        ({"epochs": 0}, "--epochs 0 must be at least 1"),
        ({"lr": 0.0}, "--lr 0 must be greater than 0"),
        ({"lr": float("nan")}, "--lr nan must be a finite number"),
        ({"decay": 0.0}, "--decay 0 must lie above 0 and be at most 1"),
        ({"decay": 1.5}, "--decay 1.5 must lie above 0 and be at most 1"),
        ({"milestones": (0.6, 60.0)}, "--milestones 60 must lie between 0 and 1"),
    ],
)
@pytest.mark.parametrize("kind", [LinearSgd, LinearAdam])
def test_impossible_settings_name_the_flag(kind: type[LinearSteps], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        kind(**settings)


@pytest.mark.parametrize("batch_size", [0, 41])
def test_impossible_batches_name_the_flag(batch_size: int) -> None:
    with pytest.raises(UserError, match="--batch"):
        train_linear(encoder(), Tinted(40, seed=1), Tinted(20, seed=2), LinearSgd(batch_size=batch_size))
