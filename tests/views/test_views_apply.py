"""Shape, layout, order and device of a batch of views."""

import pytest
import torch
from torch import Tensor

from manyview.views import POLICIES, Augment, space
from manyview.views import augment as module

POLICY = POLICIES["moco-v2"]


def images(count: int, height: int = 32, width: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_recipe_gives_finite_normalised_views(name: str) -> None:
    policy = POLICIES[name]
    augment = Augment(policy, views=3, size=24, seed=0)
    views = augment.apply({"image": images(5, 40, 50)}, augment.plan(torch.arange(5), 0))["image"]
    assert views.shape == (3, 5, 3, 24, 24)
    assert views.dtype == torch.float32
    mean, std = (torch.tensor(channels).view(3, 1, 1) for channels in (policy.mean, policy.std))
    pixels = views * std + mean
    assert pixels.min() > -1e-5
    assert pixels.max() < 1 + 1e-5


def test_views_are_channels_last_one_by_one_and_together() -> None:
    augment = Augment(POLICY, views=3, size=32, seed=0)
    views = augment.apply({"image": images(5)}, augment.plan(torch.arange(5), 0))["image"]
    together = views.flatten(0, 1)
    assert together.data_ptr() == views.data_ptr(), "flattening must not copy"
    assert together.is_contiguous(memory_format=torch.channels_last)
    assert all(view.is_contiguous(memory_format=torch.channels_last) for view in views)


def test_a_views_pixels_do_not_depend_on_the_batch_up_to_rounding() -> None:
    augment = Augment(POLICY, views=4, size=32, seed=0)
    batch, index = images(20), torch.arange(20) * 3
    views = augment.apply({"image": batch}, augment.plan(index, 2))["image"]
    part = torch.tensor([17, 3, 8])
    few = augment.apply({"image": batch[part]}, augment.plan(index[part], 2))["image"]
    torch.testing.assert_close(few, views[:, part], atol=1e-5, rtol=0)


def test_the_same_batch_gives_the_same_bits() -> None:
    augment = Augment(POLICY, views=4, size=32, seed=0)
    batch = images(20)
    first, second = (augment.apply({"image": batch}, augment.plan(torch.arange(20), 2))["image"] for _ in range(2))
    assert torch.equal(first, second)


def test_work_in_small_pieces_gives_the_same_views(monkeypatch: pytest.MonkeyPatch) -> None:
    augment = Augment(POLICY, views=4, size=32, seed=0)
    batch, plan = images(20), augment.plan(torch.arange(20), 0)
    whole = augment.apply({"image": batch}, plan)["image"]
    for views_at_once in (1, 3, 7):
        monkeypatch.setattr(module, "_CPU_CHUNK", views_at_once * 32 * 32)
        torch.testing.assert_close(augment.apply({"image": batch}, plan)["image"], whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("crops", [False, True])
def test_views_worked_on_alone_are_the_same_as_those_worked_on_together(
    monkeypatch: pytest.MonkeyPatch, crops: bool
) -> None:
    # As at large sizes: one view at a time, blurred in bands, in large pages of memory.
    augment = Augment(POLICIES["simclr"], views=4, size=32, seed=0)
    batch, plan = images(80).view(20, 4, 3, 32, 32) if crops else images(20), augment.plan(torch.arange(20), 0)
    together = augment.apply({"image": batch}, plan, cut=crops)["image"]
    monkeypatch.setattr(module, "_ALONE", 1)
    monkeypatch.setattr(module, "_LARGE", 1)
    monkeypatch.setattr(space, "_DENSE", 8)
    monkeypatch.setattr(space, "_BAND", 12)
    alone = Augment(POLICIES["simclr"], views=4, size=32, seed=0).apply({"image": batch}, plan, cut=crops)["image"]
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=0)
    assert alone.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_the_images_are_left_untouched() -> None:
    augment = Augment(POLICY, views=2, size=32, seed=0)
    plan = augment.plan(torch.arange(4), 0)
    whole, crops = images(4), images(8).view(4, 2, 3, 32, 32)
    for batch, cut in ((whole, False), (crops, True)):
        before = batch.clone()
        augment.apply({"image": batch}, plan, cut=cut)
        assert torch.equal(batch, before)


def test_an_image_of_any_memory_layout_gives_the_same_crops() -> None:
    augment = Augment(POLICY, views=4, size=24, seed=0)
    image = images(1, 50, 70)[0]
    as_decoded = image.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    crops = augment.crop({"image": image}, 3, 1)["image"]
    assert crops.shape == (4, 3, 24, 24)
    assert crops.is_contiguous()
    assert torch.equal(crops, augment.crop({"image": as_decoded}, 3, 1)["image"])


@pytest.mark.parametrize(("height", "width"), [(1, 50), (3, 3), (500, 4), (1, 1)])
def test_odd_images_give_views_too(height: int, width: int) -> None:
    augment = Augment(POLICY, views=3, size=16, seed=0)
    batch, index = images(2, height, width), torch.arange(2)
    crops = torch.stack([augment.crop({"image": image}, number, 0)["image"] for number, image in enumerate(batch)])
    for given, cut in ((batch, False), (crops, True)):
        assert augment.apply({"image": given}, augment.plan(index, 0), cut=cut)["image"].isfinite().all()


@pytest.mark.parametrize("crops", [False, True])
def test_views_are_made_on_the_device_of_the_batch(crops: bool) -> None:
    # The meta device computes shapes only, and refuses to work together with tensors of another device.
    augment = Augment(POLICIES["simclr"], views=3, size=16, seed=0)
    batch = images(12, 16, 16).view(4, 3, 3, 16, 16) if crops else images(4, 20, 30)
    views = augment.apply({"image": batch.to("meta")}, augment.plan(torch.arange(4), 0), cut=crops)["image"]
    assert views.device.type == "meta"
    assert views.shape == (3, 4, 3, 16, 16)
    assert views.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_crops_of_another_size_are_refused() -> None:
    augment = Augment(POLICY, views=2, size=32, seed=0)
    crops, plan = images(8, 24, 24).view(4, 2, 3, 24, 24), augment.plan(torch.arange(4), 0)
    with pytest.raises(ValueError, match=r"image is .* \(4, 2, 3, 24, 24\), but 2 crops of 32×32 pixels would be"):
        augment.apply({"image": crops}, plan, cut=True)


def test_whether_a_batch_is_cut_is_said_and_not_guessed() -> None:
    augment = Augment(POLICY, views=2, size=32, seed=0)
    clips, plan = images(8).view(4, 2, 3, 32, 32), augment.plan(torch.arange(4), 0)
    with pytest.raises(
        ValueError, match=r"\(4, 2, 3, 32, 32\), but a whole field would be torch.uint8 \(4, 3, 32, 32\)"
    ):
        augment.apply({"image": clips}, plan)
    with pytest.raises(ValueError, match=r"\(4, 3, 32, 32\), but 2 crops of 32×32 pixels would be"):
        augment.apply({"image": images(4)}, plan, cut=True)


@pytest.mark.parametrize(("side", "size"), [(32, 32), (32, 16), (64, 64), (256, 224)])
def test_the_last_bit_of_a_view_does_not_depend_on_its_company(side: int, size: int) -> None:
    """On which the equality of runs on one rank and on several rests."""
    augment = Augment(POLICIES["moco-v2"], views=3, size=size, seed=3)
    images, index = torch.randint(0, 256, (6, 3, side, side), dtype=torch.uint8), torch.arange(6)
    together = augment.apply({"image": images}, augment.plan(index, 0))["image"]
    for parts in (2, 3, 6):
        pieces = zip(images.chunk(parts), index.chunk(parts), strict=True)
        apart = torch.cat(
            [augment.apply({"image": some}, augment.plan(numbers, 0))["image"] for some, numbers in pieces], 1
        )
        assert torch.equal(apart, together)
