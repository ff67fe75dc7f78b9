"""What is drawn at random: ranges, probabilities, shapes of crops, and that nothing but the counters decides it."""

import math

import pytest
import torch
from torch import Tensor

from manyview.views import POLICIES, Augment, Plan, Policy
from manyview.views.plan import ORDERS

SAMPLES = 20_000
BUSY = Policy(jitter=0.8, hue=0.1, blur=0.5, solarise=0.2)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Augment(BUSY, views=2, size=32, seed=0).plan(torch.arange(SAMPLES), 0)


def assert_uniform(values: Tensor, low: float, high: float) -> None:
    """Within the range, and no further from the uniform distribution than chance allows (Kolmogorov–Smirnov, 1e-4)."""
    values = values.flatten().double().sort().values
    assert values[0] >= low
    assert values[-1] <= high
    ideal = (torch.arange(len(values)) + 0.5) / len(values)
    gap = ((values - low) / (high - low) - ideal).abs().max()
    assert gap < 2.23 / math.sqrt(len(values))


def assert_probability(chosen: Tensor, probability: float) -> None:
    error = 4 * math.sqrt(probability * (1 - probability) / chosen.numel())
    assert abs(chosen.float().mean().item() - probability) <= error


def assert_equal(one: Plan, other: Plan) -> None:
    for name, first, second in zip(Plan._fields, one, other, strict=True):
        assert torch.equal(first, second), name


@pytest.mark.parametrize(
    ("name", "probability"), [("flip", 0.5), ("jitter", 0.8), ("grey", 0.2), ("blur", 0.5), ("solarise", 0.2)]
)
def test_an_operation_applies_with_its_probability(plan: Plan, name: str, probability: float) -> None:
    assert_probability(getattr(plan, name), probability)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("area", 0.2, 1.0),
        ("ratio", math.log(3 / 4), math.log(4 / 3)),
        ("position", 0.0, 1.0),
        ("brightness", 0.6, 1.4),
        ("contrast", 0.6, 1.4),
        ("saturation", 0.6, 1.4),
        ("hue", -0.1, 0.1),
        ("sigma", 0.1, 2.0),
    ],
)
def test_a_parameter_is_uniform_in_its_range(plan: Plan, name: str, low: float, high: float) -> None:
    assert_uniform(getattr(plan, name), low, high)


def test_a_factor_is_never_negative_however_strong_the_jitter() -> None:
    plan = Augment(Policy(brightness=1.5), views=1, size=32, seed=0).plan(torch.arange(SAMPLES), 0)
    assert_uniform(plan.brightness, 0.0, 2.5)


def test_probabilities_zero_and_one_are_never_and_always() -> None:
    plan = Augment(Policy(flip=0.0, jitter=1.0), views=2, size=32, seed=0).plan(torch.arange(SAMPLES), 0)
    assert not plan.flip.any()
    assert plan.jitter.all()


def test_the_order_of_jitter_is_uniform_over_the_24_permutations(plan: Plan) -> None:
    assert len(ORDERS.unique(dim=0)) == 24
    assert (ORDERS.sort().values == torch.arange(4)).all()
    counts = torch.bincount(plan.order.flatten(), minlength=24).double()
    assert len(counts) == 24
    ideal = plan.order.numel() / 24
    assert ((counts - ideal) ** 2 / ideal).sum() < 56  # χ² with 23 degrees of freedom, 1e-4


def test_parameters_are_independent_of_one_another(plan: Plan) -> None:
    scalars = [plan.area[..., 0], plan.area[..., 1], plan.ratio[..., 0], plan.position[..., 0], plan.position[..., 1]]
    scalars += [field for field in plan if field.dim() == 2]
    columns = torch.stack([scalar.flatten().double() for scalar in scalars])
    correlation = torch.corrcoef(columns).fill_diagonal_(0)
    assert correlation.abs().max() < 5 / math.sqrt(plan.flip.numel())


def test_views_of_a_sample_are_independent_of_one_another(plan: Plan) -> None:
    for name in ("area", "brightness", "sigma", "hue"):
        values = getattr(plan, name).view(SAMPLES, 2, -1)[..., 0].t().double()
        assert torch.corrcoef(values)[0, 1].abs() < 5 / math.sqrt(SAMPLES)


def test_crops_follow_the_law_of_area_and_aspect_ratio() -> None:
    augment = Augment(BUSY, views=2, size=32, seed=0)
    plan = augment.plan(torch.arange(SAMPLES), 0)
    side = 4000  # large and square, so that rounding is negligible and most of the first tries fit
    top, left, height, width = augment.boxes(plan, side, side).double().unbind(-1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= side).all()
    assert (left + width <= side).all()
    area, ratio = height * width / side**2, (width / height).log()
    assert area.min() > 0.2 - 1e-3
    assert ratio.abs().max() < math.log(4 / 3) + 1e-3
    # A crop of less than 3/4 of the area fits whatever its shape: there nothing is distorted by rejection.
    certain = area < 0.75
    assert_uniform(ratio[certain].clamp(math.log(3 / 4), math.log(4 / 3)), math.log(3 / 4), math.log(4 / 3))
    assert_uniform(area[certain].clamp(0.2, 0.75), 0.2, 0.75)
    assert_uniform((top / (side - height + 1))[certain], 0.0, 1.0)
    assert_uniform((left / (side - width + 1))[certain], 0.0, 1.0)


def test_a_box_is_the_first_try_that_fits() -> None:
    augment = Augment(BUSY, views=1, size=32, seed=0)
    plan = augment.plan(torch.arange(200), 0)
    height, width = 90, 120
    boxes = augment.boxes(plan, height, width)
    rejected = 0
    for n in range(200):
        for area, ratio in zip(plan.area[n, 0].tolist(), plan.ratio[n, 0].tolist(), strict=True):
            wide = round(math.sqrt(area * height * width * math.exp(ratio)))
            tall = round(math.sqrt(area * height * width / math.exp(ratio)))
            if 0 < wide <= width and 0 < tall <= height:
                down, right = plan.position[n, 0].tolist()
                corner = [int(down * (height - tall + 1)), int(right * (width - wide + 1))]
                assert boxes[n, 0].tolist() == [*corner, tall, wide]
                break
            rejected += 1
    assert rejected > 10


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [(10, 400, [0, 193, 10, 13]), (400, 10, [193, 0, 13, 10]), (1, 50, [0, 24, 1, 1]), (1, 1, [0, 0, 1, 1])],
)
def test_an_extreme_shape_falls_back_to_the_largest_centred_crop(height: int, width: int, box: list[int]) -> None:
    augment = Augment(BUSY, views=2, size=32, seed=0)
    boxes = augment.boxes(augment.plan(torch.arange(50), 0), height, width)
    assert (boxes == torch.tensor(box)).all()


def test_a_plan_does_not_depend_on_the_batch_or_on_the_place_in_it() -> None:
    augment = Augment(BUSY, views=3, size=32, seed=5)
    index = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    whole = augment.plan(index, 7)
    boxes = augment.boxes(whole, 375, 500)
    for part in (slice(0, 1), slice(17, 40), slice(999, 1000), slice(0, 1000, 3)):
        plan = augment.plan(index[part], 7)
        assert_equal(plan, whole.map(lambda field, part=part: field[part]))  # type: ignore[misc]
        assert torch.equal(augment.boxes(plan, 375, 500), boxes[part])


def test_more_views_leave_the_first_ones_as_they_are() -> None:
    few, many = (Augment(BUSY, views=views, size=32, seed=5).plan(torch.arange(10), 0) for views in (2, 6))
    assert_equal(few, many.map(lambda field: field[:, :2]))


def test_seed_epoch_sample_and_view_all_change_the_draws() -> None:
    augment, other = (Augment(BUSY, views=2, size=32, seed=seed) for seed in (0, 1))
    index = torch.arange(100)
    plan = augment.plan(index, 0)
    for changed in (augment.plan(index, 1), other.plan(index, 0), augment.plan(index + 1, 0)):
        assert (plan.area != changed.area).float().mean() > 0.99
    assert (plan.area[:, 0] != plan.area[:, 1]).float().mean() > 0.99


def test_a_plan_lives_where_its_index_does() -> None:
    plan = Augment(POLICIES["moco-v2"], views=2, size=32, seed=0).plan(torch.arange(4, device="meta"), 0)
    assert {field.device.type for field in plan} == {"meta"}
