"""The loop by itself: what it yields, what it refuses, and how the weights are moved."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview import distributed
from manyview import train as loop
from manyview.config import OptimConfig
from manyview.data.loader import Batch
from manyview.methods.base import Method, ViewBatch
from manyview.train import NotFinite, Taken, build_optimizer, build_schedule, read, train
from manyview.views import Augment, policy

STEPS = 10


class Line(Method):
    """loss = weight · mean of the views: a gradient that can be written down."""

    def __init__(self, bad_step: int = -1, bad_gradient: int = -1) -> None:
        super().__init__(None, nn.Linear(1, 1), samples=8, seed=0)  # type: ignore[arg-type]
        self.seen: list[ViewBatch] = []
        self.bad_step, self.bad_gradient, self.finished = bad_step, bad_gradient, 0

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        self.seen.append(batch)
        layer: Any = self.encoder
        loss = layer.weight.sum() * (math.nan if batch.step == self.bad_step else 1.0) + layer.bias.sum()
        if batch.step == self.bad_gradient:
            loss = loss + (layer.weight - layer.weight).sqrt().sum()  # adds 0, with an infinite gradient
        return {"loss": loss, "half": loss.detach() / 2}

    def after_step(self) -> None:
        self.finished += 1


def batches(start: int = 0, stop: int = STEPS) -> Iterator[Batch]:
    for step in range(start, stop):
        index = torch.arange(4) + 4 * (step % 2)
        yield Batch(step, step // 2, index, {"image": torch.full((4, 3, 8, 8), 10 * step, dtype=torch.uint8)})


def taken(method: Line, config: OptimConfig, **options: Any) -> Iterator[Taken]:
    optimizer = build_optimizer(method, config)
    schedule = build_schedule(optimizer, config, steps=STEPS, steps_per_epoch=2)
    augment = Augment(policy("moco-v2"), views=2, size=8, seed=0)
    return train(method, batches(), augment, optimizer, schedule, steps=STEPS, device=torch.device("cpu"), **options)


def run(method: Line, config: OptimConfig, **options: Any) -> Iterator[tuple[int, dict[str, float]]]:
    for each in taken(method, config, **options):
        yield from ((step.step, metrics) for step, metrics, _, _ in read([each]))


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
    assert last.images.shape == (2, 4, 3, 8, 8)
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


def test_a_finite_loss_with_an_infinite_gradient_stops_before_the_weights_are_touched() -> None:
    method = Line(bad_gradient=3)
    layer: Any = method.encoder
    steps = run(method, OptimConfig(lr=0.1))
    for _ in range(3):
        next(steps)
    before = layer.weight.detach().clone()
    with pytest.raises(NotFinite, match="the gradient is not finite in step 3") as caught:
        next(steps)
    assert math.isfinite(caught.value.loss)
    assert torch.equal(layer.weight, before)
    assert method.finished == 3


@pytest.mark.parametrize("bad", ["bad_step", "bad_gradient"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lars"])
def test_where_nobody_waits_the_update_is_left_out_and_told_when_the_numbers_are_read(bad: str, optimizer: Any) -> None:
    method = Line(**{bad: 3})
    layer: Any = method.encoder
    steps = taken(method, OptimConfig(lr=0.1, optimizer=optimizer, schedule="constant"), wait=False)
    unread = [next(steps) for _ in range(3)]
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    unread += [next(steps) for _ in range(3)]  # the bad one, and two that follow before anybody looks
    assert all(torch.equal(now, then) for now, then in zip(layer.parameters(), before, strict=True))
    rows = read(unread)
    assert [next(rows)[0].step for _ in range(3)] == [0, 1, 2]
    with pytest.raises(NotFinite) as caught:
        next(rows)
    assert (caught.value.step, caught.value.index) == (3, [4, 5, 6, 7])


def test_numbers_are_the_same_whether_somebody_waits_or_not() -> None:
    config = OptimConfig(lr=0.1)
    one, other = (Line() for _ in range(2))
    other.load_state_dict(one.state_dict())
    each = [metrics["loss"] for _, metrics in run(one, config)]
    together = [metrics["loss"] for _, metrics, _, _ in read(list(taken(other, config, wait=False)))]
    assert each == together


def test_one_message_in_each_step_carries_metrics_stop_and_unreadable_images(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []

    def mean(values: Tensor) -> Tensor:
        messages.append(values)
        return values

    def never(*_: Any) -> None:
        raise AssertionError("a message of its own")

    monkeypatch.setattr(distributed, "mean", mean)
    for other in ("anyone", "everyone", "gather"):
        monkeypatch.setattr(distributed, other, never)
    asked = iter([False] * 4 + [True] * 6)
    steps = list(taken(Line(), OptimConfig(), stop=lambda: next(asked)))
    assert len(messages) == STEPS
    assert [stop for _, _, _, stop in read(steps)] == [False] * 4 + [True] * 6
    assert not any(lost for _, _, lost, _ in read(steps))


def test_a_step_tells_what_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = next(batches())
    broken = replace(batch, unreadable=(7,), reasons=("truncated",))
    monkeypatch.setitem(globals(), "batches", lambda: iter([batch, broken]))
    found = [(each.unreadable, lost) for each, _, lost, _ in read(list(taken(Line(), OptimConfig())))]
    assert found == [((), False), (((7, "truncated"),), True)]


def test_a_batch_is_on_its_way_to_the_gpu_before_the_step_of_the_one_before_it() -> None:
    """The order of the calls; the copies themselves need a GPU."""
    calls: list[str] = []

    class Copy:
        def start(self, batch: Batch) -> Batch:
            calls.append(f"start {batch.step}")
            return batch

        def finish(self, batch: Batch) -> Batch:
            calls.append(f"finish {batch.step}")
            return batch

    for batch in loop._one_ahead(batches(stop=3), Copy()):  # type: ignore[arg-type]
        calls.append(f"step {batch.step}")
    assert calls == [
        *("start 0", "finish 0", "start 1", "step 0"),
        *("finish 1", "start 2", "step 1", "finish 2", "step 2"),
    ]


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
