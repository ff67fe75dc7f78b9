"""Views of images that are not RGB of 8 bits: any number of channels, and 16 bits."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from manyview.errors import UserError
from manyview.fields import DEEP, FIELDS, eight_bits
from manyview.views import POLICIES, Augment, Policy, picture
from manyview.views.policies import for_channels, policy

INDEX = torch.arange(6)


def images(channels: int, *, deep: bool = False, side: int = 40) -> Tensor:
    x = torch.randint(0, 256, (6, channels, side, side), generator=torch.Generator().manual_seed(0))
    return (x * DEEP).to(torch.uint16) if deep else x.to(torch.uint8)


def views(how: Policy, x: Tensor) -> Tensor:
    augment = Augment(how, views=3, size=16, seed=0)
    return augment.apply({"image": x}, augment.plan(INDEX, 0))["image"]


def crops(how: Policy, x: Tensor) -> Tensor:
    augment = Augment(how, views=3, size=16, seed=0)
    return augment.views_of([{"image": each} for each in x], INDEX.tolist(), 0)["image"]


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_picture_in_16_bits_has_the_same_views(name: str) -> None:
    assert torch.allclose(views(policy(name), images(3)), views(policy(name), images(3, deep=True)), atol=1e-4)
    # Cut beforehand, crops are rounded: to 8 bits or to 16.
    assert (crops(policy(name), images(3)) - crops(policy(name), images(3, deep=True))).abs().mean() < 0.02


def test_the_precision_of_16_bits_is_kept() -> None:
    dim = (images(3, deep=True).int() // 400).to(torch.uint16)  # of which 8 bits would know one value
    found = crops(for_channels(POLICIES["cmc"], 3), dim)
    assert len(found.unique()) > 50


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 4, 7])
@pytest.mark.parametrize("name", ["moco-v1", "simclr"])
def test_channels_are_cut_blurred_and_brightened_alike(name: str, channels: int, deep: bool) -> None:
    how = for_channels(policy(name), channels)
    x = images(channels, deep=deep)
    x[:] = x[:, :1]  # all channels are the same, and stay so
    for found in (views(how, x), crops(how, x)):
        assert found.shape == (3, 6, channels, 16, 16)
        assert torch.allclose(found, found[:, :, :1].expand_as(found), atol=1e-4)
        assert found.amin() >= -1e-4
        assert found.amax() <= 1 + 1e-4
        assert found[0].std() > 0.01


def test_contrast_draws_each_image_to_its_mean() -> None:
    still = replace(for_channels(Policy(brightness=0.0, contrast=0.9, flip=0.0, scale=(1.0, 1.0), ratio=(1.0, 1.0)), 4))
    augment = Augment(still, views=1, size=40, seed=0)
    plan = augment.plan(INDEX, 0)
    x = images(4)
    values = x.double() / 255
    factor = plan.contrast[:, 0].double().view(-1, 1, 1, 1)
    expected = (factor * values + (1 - factor) * values.mean((1, 2, 3), keepdim=True)).clamp(0, 1)
    assert torch.allclose(augment.apply({"image": x}, plan)["image"][0].double(), expected, atol=1e-5)


def test_channels_are_normalised_one_by_one() -> None:
    mean, std = (0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7, 0.8)
    how = replace(for_channels(POLICIES["cmc"], 4), mean=mean, std=std)
    plain, x = views(for_channels(POLICIES["cmc"], 4), images(4)), images(4)
    shape = (4, 1, 1)
    expected = (plain - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)
    assert torch.allclose(views(how, x), expected, atol=1e-5)


def test_randaugment_needs_colours() -> None:
    with pytest.raises(UserError, match=r"--augment …\+ra needs RGB images, and --channels is 4: leave \+ra out"):
        for_channels(policy("cmc+ra"), 4)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_pictures_show_three_channels_or_grey(channels: int) -> None:
    how = for_channels(POLICIES["cmc"], channels)
    x = images(channels, deep=True)
    drawn = picture([{"image": each} for each in x[:2]], Augment(how, views=2, size=16, seed=0))
    assert drawn.shape[2] == 3
    shown = eight_bits(FIELDS["image"].show(x))
    assert shown.shape == (6, 3, 40, 40)
    part = x[:, :3] if channels >= 3 else x[:, :1].expand(-1, 3, -1, -1)
    assert torch.equal(shown.int() * DEEP, part.int())
