"""The loop by itself: what it yields, what it refuses, and how the weights are moved."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview.config import OptimConfig
from manyview.data.loader import Batch
from manyview.methods.base import Method, ViewBatch
from manyview.train import NotFinite, build_optimizer, build_schedule, train
from manyview.views import Augment, recipe

STEPS = 10


class Line(Method):
    """loss = weight · mean of the views: a gradient that can be written down."""

    def __init__(self, bad_step: int = -1) -> None:
        super().__init__(None, nn.Linear(1, 1), samples=8, seed=0)  # type: ignore[arg-type]
        self.seen: list[ViewBatch] = []
        self.bad_step, self.finished = bad_step, 0

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        self.seen.append(batch)
        layer: Any = self.encoder
        loss = layer.weight.sum() * (math.nan if batch.step == self.bad_step else 1.0) + layer.bias.sum()
        return {"loss": loss, "half": loss.detach() / 2}

    def after_step(self) -> None:
        self.finished += 1


def batches(start: int = 0, stop: int = STEPS) -> Iterator[Batch]:
    for step in range(start, stop):
        index = torch.arange(4) + 4 * (step % 2)
        yield Batch(step, step // 2, index, torch.full((4, 3, 8, 8), 10 * step, dtype=torch.uint8))


def run(method: Line, config: OptimConfig, **options: Any) -> Iterator[tuple[int, dict[str, float]]]:
    optimizer = build_optimizer(method, config)
    schedule = build_schedule(optimizer, config, steps=STEPS, steps_per_epoch=2)
    augment = Augment(recipe("moco-v2"), views=2, size=8, seed=0)
    return train(method, batches(), augment, optimizer, schedule, steps=STEPS, device=torch.device("cpu"), **options)


def test_every_step_is_yielded_once_with_loss_rate_speed_and_diagnostics() -> None:
    method = Line()
    results = list(run(method, OptimConfig(lr=0.1)))
    assert [step for step, _ in results] == list(range(STEPS))
    assert method.finished == STEPS
    for _, metrics in results:
        assert set(metrics) == {"loss", "half", "lr", "images_per_s", "wait"}
        assert metrics["half"] == pytest.approx(metrics["loss"] / 2)
        assert 0 <= metrics["wait"] <= 1


def test_a_method_sees_views_numbers_and_its_place_in_the_run() -> None:
    method = Line()
    list(run(method, OptimConfig()))
    last = method.seen[-1]
    assert last.views.shape == (2, 4, 3, 8, 8)
    assert last.index.tolist() == [4, 5, 6, 7]
    assert (last.step, last.steps, last.progress) == (9, 10, 1.0)


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_touched() -> None:
    method = Line(bad_step=3)
    layer: Any = method.encoder
    steps = run(method, OptimConfig(lr=0.1))
    for _ in range(3):
        next(steps)
    before = layer.weight.detach().clone()
    with pytest.raises(NotFinite) as caught:
        next(steps)
    assert (caught.value.step, caught.value.index) == (3, [4, 5, 6, 7])
    assert torch.equal(layer.weight, before)
    assert method.finished == 3


def test_the_cosine_falls_from_the_peak_to_zero_over_the_horizon() -> None:
    rates = [metrics["lr"] for _, metrics in run(Line(), OptimConfig(lr=0.4))]
    assert rates == pytest.approx([0.2 * (1 + math.cos(math.pi * t / STEPS)) for t in range(STEPS)])


def test_steps_fall_tenfold_at_their_shares_of_the_run() -> None:
    rates = [metrics["lr"] for _, metrics in run(Line(), OptimConfig(lr=1.0, schedule="step", milestones=(0.6, 0.8)))]
    assert rates == pytest.approx([1.0] * 6 + [0.1] * 2 + [0.01] * 2)


def test_a_constant_rate_stays_after_a_linear_warm_up() -> None:
    config = OptimConfig(lr=1.0, schedule="constant", warmup_epochs=2)
    assert [m["lr"] for _, m in run(Line(), config)] == pytest.approx([0, 0.25, 0.5, 0.75] + [1.0] * 6)


@pytest.mark.parametrize(("rule", "rate"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_rate_scales_with_the_batch_as_asked(rule: Any, rate: float) -> None:
    optimizer = build_optimizer(Line(), OptimConfig(lr=0.1, batch_size=1024, lr_rule=rule))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_sgd_is_classical_momentum_with_decay_on_everything() -> None:
    method = Line()
    layer: Any = method.encoder
    weight, velocity = layer.weight.item(), 0.0
    config = OptimConfig(lr=0.1, weight_decay=0.01, schedule="constant")
    for _ in run(method, config):
        velocity = 0.9 * velocity + (1 + 0.01 * weight)
        weight -= 0.1 * velocity
        assert layer.weight.item() == pytest.approx(weight, abs=1e-5)
    groups = build_optimizer(method, config).param_groups
    assert {group["weight_decay"] for group in groups} == {0.01}
    assert not groups[0]["nesterov"]


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_adaptive_rules_spare_biases_the_decay(name: Any) -> None:
    groups = build_optimizer(Line(), OptimConfig(optimizer=name, weight_decay=0.1)).param_groups
    assert sorted(group["weight_decay"] for group in groups) == [0.0, 0.1]


def test_the_gradient_is_clipped_to_its_largest_norm() -> None:
    method = Line()
    layer: Any = method.encoder
    before = layer.weight.item()
    steps = run(method, OptimConfig(lr=1.0, weight_decay=0.0, schedule="constant"), clip_grad=0.1)
    next(steps)
    assert before - layer.weight.item() == pytest.approx(0.1 / math.sqrt(2), rel=1e-4)
