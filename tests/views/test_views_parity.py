"""The batched operations against torchvision's float operations, for given parameters."""

import math
import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torchvision.transforms.v2.functional as reference
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

from manyview.views import POLICIES, Augment, Plan, Policy
from manyview.views.plan import JITTER, ORDERS

# Without normalisation the views are in [0, 1].
PLAIN = replace(POLICIES["simclr"], mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pictures(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Smooth shapes with noise, a flat grey and a pure black image, in uint8."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    images = (smooth + 0.1 * torch.randn(smooth.shape, generator=generator)).clamp(0, 1).mul(255).to(torch.uint8)
    images[0] = 128
    images[1] = 0
    return images


def still(plan: Plan) -> Plan:
    """The same plan with everything off but the crop, which is the whole of a square image."""
    off = torch.zeros_like(plan.flip)
    one, none = torch.ones_like(plan.hue), torch.zeros_like(plan.hue)
    return plan._replace(
        area=torch.ones_like(plan.area),
        ratio=torch.zeros_like(plan.ratio),
        flip=off,
        jitter=off,
        brightness=one,
        contrast=one,
        saturation=one,
        hue=none,
        grey=off,
        blur=off,
        solarise=off,
    )


def one_view(image: Tensor, box: list[int], plan: Plan, n: int, v: int, policy: Policy, size: int) -> Tensor:
    """The chain in torchvision's words, for the view v of the sample n."""

    def greyed(x: Tensor) -> Tensor:
        grey: Tensor = reference.rgb_to_grayscale(x, num_output_channels=3)
        return grey if plan.grey[n, v] else x

    top, left, height, width = box
    x: Tensor = reference.resized_crop(image / 255, top, left, height, width, [size, size], antialias=True)
    x = reference.horizontal_flip(x) if plan.flip[n, v] else x
    x = greyed(x) if policy.grey_first else x
    if plan.jitter[n, v]:
        for number in ORDERS[plan.order[n, v]].tolist():
            name = JITTER[number]
            x = getattr(reference, f"adjust_{name}")(x, float(getattr(plan, name)[n, v]))
    x = x if policy.grey_first else greyed(x)
    if plan.blur[n, v]:
        sigma = float(plan.sigma[n, v])
        x = reference.gaussian_blur(x, [2 * math.ceil(3 * sigma) + 1] * 2, [sigma])
    if plan.solarise[n, v]:
        x = reference.solarize(x, policy.threshold)
    return x


def expected(images: Tensor, augment: Augment, plan: Plan) -> Tensor:
    boxes = augment.boxes(plan, *images.shape[-2:]).tolist()
    samples, views = plan.flip.shape
    return torch.stack(
        [
            torch.stack(
                [one_view(images[n], boxes[n][v], plan, n, v, augment.policy, augment.size) for n in range(samples)]
            )
            for v in range(views)
        ]
    )


def assert_close(actual: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(actual, wanted, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("height", "width", "size"), [(32, 32, 32), (96, 96, 64), (50, 71, 32), (20, 17, 32), (33, 90, 45), (16, 16, 7)]
)
def test_crop_and_flip_equal_an_antialiased_resize_of_the_box(height: int, width: int, size: int) -> None:
    images = pictures(6, height, width)
    augment = Augment(PLAIN, views=4, size=size, seed=1)
    drawn = augment.plan(torch.arange(6), 0)
    plan = still(drawn)._replace(area=drawn.area, ratio=drawn.ratio, flip=drawn.flip)
    assert plan.flip.any()
    assert not plan.flip.all()
    assert_close(augment.apply({"image": images}, plan)["image"], expected(images, augment, plan))


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_a_jitter_operation_equals_torchvision(name: str) -> None:
    images = pictures(8, 32, 32)
    augment = Augment(replace(PLAIN, hue=0.5), views=4, size=32, seed=2)
    drawn = augment.plan(torch.arange(8), 0)
    plan = still(drawn)._replace(jitter=torch.ones_like(drawn.jitter), **{name: getattr(drawn, name)})
    views = augment.apply({"image": images}, plan)["image"]
    assert_close(views, expected(images, augment, plan))
    assert (views[:, 2:] - images[2:] / 255).abs().amax() > 0.1, "the operation must do something"


def test_a_hue_of_every_corner_of_the_colour_cube_turns_as_in_torchvision() -> None:
    steps = torch.tensor([0, 1, 64, 127, 128, 254, 255], dtype=torch.uint8)
    cube = torch.cartesian_prod(steps, steps, steps).t()  # (3, 343), ties between the primaries among them
    image = torch.zeros(3, 400, dtype=torch.uint8)
    image[:, :343] = cube
    images = image.view(1, 3, 20, 20)
    augment = Augment(replace(PLAIN, hue=0.5), views=21, size=20, seed=0)
    drawn = augment.plan(torch.arange(1), 0)
    turns = torch.linspace(-0.5, 0.5, 21).view(1, 21)
    plan = still(drawn)._replace(jitter=torch.ones_like(drawn.jitter), hue=turns)
    assert_close(augment.apply({"image": images}, plan)["image"], expected(images, augment, plan))


def test_greyscale_equals_torchvision() -> None:
    images = pictures(4, 32, 32)
    augment = Augment(PLAIN, views=6, size=32, seed=3)
    drawn = augment.plan(torch.arange(4), 0)
    plan = still(drawn)._replace(grey=drawn.grey)
    assert plan.grey.any()
    assert_close(augment.apply({"image": images}, plan)["image"], expected(images, augment, plan))


@pytest.mark.parametrize("size", [16, 32, 113, 160])  # the last two are blurred in bands
def test_blur_covers_three_sigma_and_equals_torchvision_with_that_kernel_size(size: int) -> None:
    images = pictures(4, size, size)
    augment = Augment(PLAIN, views=6, size=size, seed=4)
    drawn = augment.plan(torch.arange(4), 0)
    plan = still(drawn)._replace(blur=drawn.blur, sigma=drawn.sigma)
    assert plan.sigma[plan.blur].max() > 1.5
    assert plan.sigma[plan.blur].min() < 0.5
    assert_close(augment.apply({"image": images}, plan)["image"], expected(images, augment, plan))


def test_blur_of_a_view_smaller_than_the_kernel_keeps_a_flat_image_flat() -> None:
    augment = Augment(replace(PLAIN, blur=1.0, sigma=(2.0, 2.0)), views=2, size=4, seed=0)
    plan = still(augment.plan(torch.arange(1), 0))
    plan = plan._replace(blur=torch.ones_like(plan.blur))
    views = augment.apply({"image": torch.full((1, 3, 4, 4), 51, dtype=torch.uint8)}, plan)["image"]
    assert_close(views, torch.full_like(views, 0.2))


def test_solarise_equals_torchvision() -> None:
    images = pictures(4, 32, 32)
    augment = Augment(replace(PLAIN, solarise=0.5, threshold=0.4), views=4, size=32, seed=5)
    drawn = augment.plan(torch.arange(4), 0)
    plan = still(drawn)._replace(solarise=drawn.solarise)
    assert plan.solarise.any()
    assert_close(augment.apply({"image": images}, plan)["image"], expected(images, augment, plan))


@pytest.mark.parametrize("grey_first", [False, True])
@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (60, 80, 48), (24, 40, 32)])
def test_the_whole_chain_equals_torchvision(height: int, width: int, size: int, grey_first: bool) -> None:
    images = pictures(24, height, width)
    # Inverting is not continuous, so a threshold is chosen that no pixel comes close to.
    policy = replace(PLAIN, grey_first=grey_first, hue=0.5, solarise=0.3, threshold=-1.0)
    augment = Augment(policy, views=3, size=size, seed=6)
    plan = augment.plan(torch.arange(24), 0)
    assert_close(augment.apply({"image": images}, plan)["image"], expected(images, augment, plan))


def test_normalisation_is_the_last_operation() -> None:
    images = pictures(4, 32, 32)
    plain, normalised = (Augment(r, views=2, size=32, seed=7) for r in (PLAIN, POLICIES["simclr"]))
    plan = plain.plan(torch.arange(4), 0)
    wanted = reference.normalize(
        plain.apply({"image": images}, plan)["image"], list(normalised.policy.mean), list(normalised.policy.std)
    )
    torch.testing.assert_close(normalised.apply({"image": images}, plan)["image"], wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(120, 160), (30, 24), (64, 64)])
def test_crops_cut_in_uint8_are_within_one_step_of_the_float_crop(height: int, width: int) -> None:
    augment = Augment(PLAIN, views=5, size=48, seed=8)
    image = pictures(3, height, width)[2]
    boxes = augment.boxes(augment.plan(torch.tensor([9]), 2), height, width)[0].tolist()
    crops = augment.crop({"image": image}, 9, 2)["image"]
    assert crops.dtype == torch.uint8
    for crop, (top, left, tall, wide) in zip(crops, boxes, strict=True):
        exact = reference.resized_crop(image / 255, top, left, tall, wide, [48, 48], antialias=True)
        assert (crop.int() - (exact * 255).round().int()).abs().amax() <= 1


def test_crops_of_a_worker_and_whole_images_give_the_same_views_up_to_rounding() -> None:
    augment = Augment(PLAIN, views=4, size=32, seed=9)
    images = pictures(10, 60, 44)
    index = torch.arange(10) + 100
    plan = augment.plan(index, 3)
    crops = torch.stack(
        [augment.crop({"image": image}, int(i), 3)["image"] for image, i in zip(images, index, strict=True)]
    )
    difference = (
        augment.apply({"image": crops}, plan, cut=True)["image"] - augment.apply({"image": images}, plan)["image"]
    ).abs()
    # Jitter amplifies a step of 1/255: up to ×1.8 for each of brightness, contrast and saturation.
    assert difference.mean() < 1 / 255
    assert difference.amax() < 8 / 255


def test_photographs_give_the_same_views_as_torchvision() -> None:
    root = os.environ.get("MANYVIEW_TEST_DATA")
    if root is None:
        pytest.skip("MANYVIEW_TEST_DATA is not set: no photographs to try")
    policy = replace(POLICIES["moco-v2"], mean=PLAIN.mean, std=PLAIN.std)
    augment = Augment(policy, views=2, size=224, seed=10)
    for number, path in enumerate(sorted(Path(root, "coco-mini", "train2017").glob("*.jpg"))[:3]):
        image = pil_to_tensor(Image.open(path).convert("RGB"))
        plan = augment.plan(torch.tensor([number]), 0)
        wanted = expected(image.unsqueeze(0), augment, plan)
        assert_close(augment.apply({"image": image.unsqueeze(0)}, plan)["image"], wanted)
        crops = augment.crop({"image": image}, number, 0)["image"].unsqueeze(0)
        assert (augment.apply({"image": crops}, plan, cut=True)["image"] - wanted).abs().amax() < 5 / 255


@pytest.mark.slow  # the compiler takes its time
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("size", [32, 224])
def test_compiled_views_are_the_same(size: int) -> None:
    images = torch.randint(0, 256, (6, 3, size, size), dtype=torch.uint8)
    plain, compiled = (
        Augment(POLICIES["moco-v2"], views=4, size=size, seed=1, compile=compile) for compile in (False, True)
    )
    plan = plain.plan(torch.arange(6), 0)
    torch.testing.assert_close(
        compiled.apply({"image": images}, plan)["image"],
        plain.apply({"image": images}, plan)["image"],
        rtol=0,
        atol=1e-4,
    )
    assert torch.equal(
        pickle.loads(pickle.dumps(compiled)).apply({"image": images}, plan)["image"],
        compiled.apply({"image": images}, plan)["image"],
    )
