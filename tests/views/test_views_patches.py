"""Jigsaws and strided patches."""

import itertools

import pytest
import torch
from torch import Tensor

from manyview.views.patches import Jigsaw, strided


def numbered(samples: int, channels: int, height: int, width: int) -> Tensor:
    """Images in which every pixel is another number."""
    return torch.arange(samples * channels * height * width).view(samples, channels, height, width)


def test_patches_as_large_as_the_cells_are_the_image_in_pieces() -> None:
    images, jigsaw = numbered(5, 2, 12, 12), Jigsaw(side=4, seed=0)
    plan = jigsaw.plan(torch.arange(5), 0)
    patches = jigsaw.apply(images, plan)
    assert patches.shape == (5, 9, 2, 4, 4)
    for sample, place in itertools.product(range(5), range(9)):
        row, column = divmod(int(plan.order[sample, place]), 3)
        cell = images[sample, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        assert torch.equal(patches[sample, place], cell)


def test_patches_larger_than_the_cells_are_refused() -> None:
    jigsaw = Jigsaw(side=5, seed=0)
    with pytest.raises(ValueError, match="patches of 5 pixels do not fit"):
        jigsaw.apply(numbered(2, 3, 12, 15), jigsaw.plan(torch.arange(2), 0))


def test_smaller_patches_lie_anywhere_in_their_cells() -> None:
    samples, side, cell = 400, 4, 6
    images, jigsaw = numbered(samples, 1, 3 * cell, 3 * cell + 2), Jigsaw(side=side, seed=0)
    plan = jigsaw.plan(torch.arange(samples), 0)
    patches = jigsaw.apply(images, plan).squeeze(2)
    corner = patches[:, :, 0, 0] - images[:, 0, 0, :1]
    row, column = corner // (3 * cell + 2), corner % (3 * cell + 2)
    assert torch.equal(row // cell * 3 + column // cell, plan.order)
    for inside in (row % cell, column % cell):
        assert torch.bincount(inside.flatten()).tolist() == pytest.approx([samples * 9 / 3] * 3, rel=0.1)
    assert torch.equal(patches[:, :, -1, -1] - patches[:, :, 0, 0], torch.full((samples, 9), 3 * (3 * cell + 2) + 3))


def test_every_order_of_the_cells_is_as_likely() -> None:
    order = Jigsaw(side=1, seed=0).plan(torch.arange(20_000), 0).order
    assert torch.equal(order.sort(-1).values, torch.arange(9).expand(20_000, 9))
    for place in range(9):
        counts = torch.bincount(order[:, place]) / 20_000
        assert counts.tolist() == pytest.approx([1 / 9] * 9, abs=0.01)
    pairs = torch.bincount(order[:, 0] * 9 + order[:, 1]) / 20_000
    assert pairs[pairs > 0].tolist() == pytest.approx([1 / 72] * 72, abs=0.005)


def test_a_jigsaw_is_a_function_of_seed_epoch_and_sample() -> None:
    jigsaw, index = Jigsaw(side=2, seed=0), torch.arange(50)
    plan = jigsaw.plan(index, 3)
    part = torch.tensor([41, 7, 7])
    assert all(torch.equal(few, every[part]) for few, every in zip(jigsaw.plan(part, 3), plan, strict=True))
    others = (jigsaw.plan(index, 4), Jigsaw(side=2, seed=1).plan(index, 3))
    assert all(not torch.equal(mine, its) for other in others for mine, its in zip(plan, other, strict=True))
    assert (plan.order != torch.arange(9)).any(1).all()


def test_views_that_share_a_plan_are_cut_alike() -> None:
    images, jigsaw = numbered(3, 3, 9, 9), Jigsaw(side=2, seed=0)
    plan = jigsaw.plan(torch.arange(3), 0)
    first, rest = jigsaw.apply(images[:, :1], plan), jigsaw.apply(images[:, 1:], plan)
    assert torch.equal(torch.cat((first, rest), 2), jigsaw.apply(images, plan))


def test_strided_patches() -> None:
    images = numbered(2, 3, 64, 64)
    patches = strided(images)
    assert patches.shape == (2, 49, 3, 16, 16)
    for number, (top, left) in enumerate(itertools.product(range(0, 49, 8), repeat=2)):
        assert torch.equal(patches[:, number], images[:, :, top : top + 16, left : left + 16])


def test_strided_patches_of_other_shapes() -> None:
    images = numbered(1, 1, 10, 14)
    patches = strided(images, side=4, overlap=1)
    assert patches.shape == (1, 3 * 4, 1, 4, 4)
    assert torch.equal(patches[0, 5, 0], images[0, 0, 3:7, 3:7])
