"""RandAugment against torchvision's, and its randomness."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from manyview.errors import UserError
from manyview.views import Augment, policy
from manyview.views.randaugment import OPERATIONS, RandAugment, RandPlan

PICTURES = torch.nn.functional.interpolate(
    torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0)), (331, 40), mode="bilinear"
)
PICTURES = (PICTURES * 200 + 20).to(torch.uint8)


def torchvision_names() -> dict[str, str]:
    return dict(zip(OPERATIONS, v2.RandAugment._AUGMENTATION_SPACE, strict=True))


def torchvisions_results(name: str, magnitude: int) -> list[Tensor]:
    """What torchvision makes of the pictures with this operation: both directions, if it has two."""
    original: dict[str, Any] = v2.RandAugment._AUGMENTATION_SPACE

    class Only(v2.RandAugment):  # type: ignore[misc]
        _AUGMENTATION_SPACE = {name: original[name]}  # noqa: RUF012

    results: list[Tensor] = []
    for seed in range(12):
        torch.manual_seed(seed)
        result = torch.stack([Only(num_ops=1, magnitude=magnitude)(picture) for picture in PICTURES[:2]])
        # The two pictures may have gone different ways.
        if not any(torch.equal(result, known) for known in results):
            results.append(result)
    return results


@pytest.mark.parametrize("magnitude", [9, 30])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_torchvisions(name: str, magnitude: int) -> None:
    operation = OPERATIONS[name]
    ways = [operation(PICTURES[:2], signed) for signed in (magnitude, -magnitude)]
    expected = torchvisions_results(torchvision_names()[name], magnitude)
    for picture in range(2):
        seen = [result[picture] for result in expected]
        assert all(any(torch.equal(way[picture], result) for result in seen) for way in ways), "not theirs"
        assert all(any(torch.equal(way[picture], result) for way in ways) for result in seen), "not ours"


def of_view(plan: RandPlan, view: int) -> RandPlan:
    return RandPlan(*(field[:, view] for field in plan))


def one_by_one(augment: RandAugment, images: Tensor, plan: RandPlan) -> Tensor:
    operations: list[Callable[[Tensor, int], Tensor]] = list(OPERATIONS.values())
    out = []
    for image, chosen, backwards in zip(images, plan.operation.tolist(), plan.backwards.tolist(), strict=True):
        for number, negative in zip(chosen, backwards, strict=True):
            image = operations[number](image, -augment.magnitude if negative else augment.magnitude)
        out.append(image)
    return torch.stack(out)


def test_images_are_augmented_together_as_one_by_one() -> None:
    images = PICTURES.repeat(20, 1, 1, 1)[..., :40, :]
    before = images.clone()
    augment = RandAugment(operations=3, magnitude=12, seed=0)
    plan = of_view(augment.plan(torch.arange(len(images)), 0, 1), 0)
    together = augment.apply(images, plan)
    assert together.dtype == torch.uint8
    assert torch.equal(images, before)
    difference = (together.int() - one_by_one(augment, images, plan).int()).abs()
    assert difference.max() <= 3, "a mean may round differently, and the next operation steepen that"
    assert (difference > 0).float().mean() < 1e-3


def test_a_plan_is_a_function_of_seed_epoch_sample_and_view() -> None:
    augment, index = RandAugment(seed=0), torch.arange(40)
    plan = of_view(augment.plan(index, 2, 2), 1)
    part = torch.tensor([31, 4])
    few_of_more = of_view(augment.plan(part, 2, 5), 1)
    assert all(torch.equal(few, every[part]) for few, every in zip(few_of_more, plan, strict=True))
    others = (
        of_view(augment.plan(index, 3, 2), 1),
        of_view(augment.plan(index, 2, 2), 0),
        of_view(RandAugment(seed=1).plan(index, 2, 2), 1),
    )
    assert all(not torch.equal(mine, its) for other in others for mine, its in zip(plan, other, strict=True))


def test_all_operations_are_as_likely_in_both_directions() -> None:
    plan = of_view(RandAugment(seed=0).plan(torch.arange(30_000), 0, 1), 0)
    for column in range(2):
        courses = torch.bincount(plan.operation[:, column] * 2 + plan.backwards[:, column].long()) / 30_000
        assert courses.tolist() == pytest.approx([1 / 28] * 28, abs=5 * math.sqrt(1 / 28 / 30_000))


def test_a_magnitude_beyond_the_scale_is_refused() -> None:
    with pytest.raises(UserError, match="magnitude 31 must lie between 0 and 30"):
        RandAugment(magnitude=31, seed=0)


def test_a_recipe_with_it_behind_is_the_recipe_and_then_it() -> None:
    images, index = PICTURES.repeat(3, 1, 1, 1), torch.arange(3 * len(PICTURES))
    plain, followed = (Augment(policy(name, normalise=False), views=2, size=24, seed=5) for name in ("cmc", "cmc+ra"))
    before = (plain.apply({"image": images}, plain.plan(index, 1))["image"] * 255).round().to(torch.uint8)
    plan = followed.plan(index, 1)
    after = followed.apply({"image": images}, plan)["image"] * 255
    alone = RandAugment(operations=2, magnitude=9, seed=5)
    for view in range(2):
        expected = alone.apply(before[view].contiguous(), RandPlan(plan.operation[:, view], plan.backwards[:, view]))
        # Means over a part of the batch may round differently.
        assert ((after[view] - expected).abs() > 1.5).float().mean() < 0.01
    assert (after - before).abs().mean() > 5
    with pytest.raises(UserError, match=r"--augment cmc\+rb is not known: choose one of moco-v1.* with \+ra behind"):
        policy("cmc+rb")
