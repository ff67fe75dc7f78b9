"""The further images of a sample are cut and mirrored with its colours, and their geometry stays true."""

import math
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2.functional import resized_crop

from manyview.data.scenes import Scenes
from manyview.views import RECIPES, Augment, Plan

SIZE = 64
SAMPLES = 24
PLANES = ("depth", "normals", "segmentation")
SOLIDS_END = 3.42 / 8  # depth: solids lie before, cut-outs and wall behind


@cache
def scenes() -> Tensor:
    return Scenes(SAMPLES, size=SIZE, planes=PLANES).batch(torch.arange(SAMPLES))


def made(size: int, *, views: int = 1, **plan: Tensor) -> tuple[dict[str, Tensor], Augment, Plan]:
    """Views of the scenes as training draws them, but for what `plan` says: (V·N, c, size, size) by name."""
    augment = Augment(RECIPES["cmc"], views=views, size=size, seed=0, planes=PLANES)
    drawn = augment.plan(torch.arange(SAMPLES), 0)._replace(**plan)
    rgb, depth, normals, segmentation = augment.apply(scenes(), drawn).flatten(0, 1).split([3, 1, 3, 1], 1)
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (augment.recipe.mean, augment.recipe.std))
    named = {"rgb": rgb * std + mean, "depth": depth, "normals": 2 * normals - 1, "segmentation": segmentation}
    return named, augment, drawn


def whole(*, flip: bool) -> dict[str, Tensor]:
    area, ratio = torch.ones(SAMPLES, 1, 10), torch.zeros(SAMPLES, 1, 10)
    return made(SIZE, area=area, ratio=ratio, flip=torch.full((SAMPLES, 1), flip))[0]


@pytest.mark.parametrize("flip", [False, True])
def test_normals_are_those_of_the_mirrored_surface(flip: bool) -> None:
    """Where a surface leans to the right, its depth grows to the right."""
    crops = whole(flip=flip)
    reach, inner = 4, slice(4, -4)
    # Depth has 256 steps: smoothed, its differences still tell the slope.
    depth = F.avg_pool2d(crops["depth"], 5, 1, 2, count_include_pad=False)[:, 0]
    slopes = depth[:, :, 2 * reach :] - depth[:, :, : -2 * reach], depth[:, : -2 * reach] - depth[:, 2 * reach :]
    highest, lowest = (sign * F.max_pool2d(sign * crops["segmentation"], 13, 1, 6)[:, 0] for sign in (1, -1))
    one_thing = (highest - lowest < 0.1)[:, inner, inner]
    assert one_thing.float().mean() > 0.2
    x, y, z = crops["normals"][:, :, inner, inner].unbind(1)
    for slope, along in zip((slopes[0][:, inner], slopes[1][:, :, inner]), (x, y), strict=True):
        places = one_thing & (z > 0.5)
        agreement = torch.corrcoef(torch.stack((slope[places], (along / z)[places])))[0, 1]
        assert agreement > 0.9


def test_a_flip_is_a_mirror_of_the_crop() -> None:
    plain, flipped = (made(48, flip=torch.full((SAMPLES, 1), flip))[0] for flip in (False, True))
    sign = torch.tensor([-1.0, 1.0, 1.0]).view(3, 1, 1)
    for name, view in flipped.items():
        mirrored = plain[name].flip(-1) * (sign if name == "normals" else 1)
        torch.testing.assert_close(view, mirrored, atol=1e-4, rtol=0)


@pytest.mark.parametrize("size", [24, 64, 96])
def test_the_edges_of_all_views_coincide(size: int) -> None:
    crops, augment, plan = made(size)
    solid, near = crops["segmentation"] > 0.75, crops["depth"] < SOLIDS_END
    smallest = int(augment.boxes(plan, SIZE, SIZE)[..., 2:].min())
    reach = max(1, math.ceil(size / smallest))  # an old pixel, in new ones
    highest, lowest = (sign * F.max_pool2d(sign * solid.float(), 2 * reach + 1, 1, reach) for sign in (1, -1))
    edge = highest != lowest
    assert solid.any((1, 2, 3)).float().mean() > 0.9
    assert not (solid != near)[~edge].any(), "depth and segmentation part only at an edge"
    assert (solid != near)[edge].float().mean() < 0.25


def test_colours_and_further_images_are_torchvisions_crops() -> None:
    crops, augment, plan = made(40, views=2)
    boxes = augment.boxes(plan, SIZE, SIZE).transpose(0, 1).flatten(0, 1)
    stack = torch.cat([(crops[name] + 1) / 2 if name == "normals" else crops[name] for name in ("rgb", *PLANES)], 1)
    for number, (top, left, height, width) in enumerate(boxes.tolist()):
        image = scenes()[number % SAMPLES] / 255
        expected = resized_crop(image, top, left, height, width, [40, 40], antialias=True)
        if plan.flip.T.flatten()[number]:
            expected = expected.flip(-1)
            expected[4] = 1 - expected[4]  # the x of the normals
        torch.testing.assert_close(stack[number], expected, atol=1e-4, rtol=0)


def test_workers_that_cut_one_by_one_give_the_same_views() -> None:
    augment = Augment(RECIPES["cmc"], views=2, size=32, seed=0, planes=PLANES)
    plan = augment.plan(torch.arange(SAMPLES), 3)
    crops = torch.stack([augment.crop(image, number, 3) for number, image in enumerate(scenes())])
    together = augment.apply(scenes(), plan)
    assert together.shape == (2, SAMPLES, 8, 32, 32)
    assert together.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    mean_difference = (augment.apply(crops, plan) - together).abs().mean()
    assert mean_difference < 0.01  # cut crops are rounded to whole numbers, and colours are divided by deviations


def test_samples_without_the_further_images_are_refused() -> None:
    augment = Augment(RECIPES["cmc"], views=1, size=16, seed=0, planes=("depth",))
    with pytest.raises(ValueError, match="samples of 3 channels where views of 4 are made"):
        augment.apply(scenes()[:, :3], augment.plan(torch.arange(SAMPLES), 0))
