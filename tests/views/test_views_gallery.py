"""The picture of samples and their views."""

import io
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from manyview.views import POLICIES, Augment, picture, png


def gradient(height: int, width: int) -> Tensor:
    ramp = torch.linspace(0, 255, width).expand(3, height, width).clone()
    ramp[2] = 40
    return ramp.to(torch.uint8)


def test_a_row_shows_the_original_and_then_the_views_that_training_sees() -> None:
    quiet = replace(POLICIES["cifar"], scale=(1.0, 1.0), ratio=(1.0, 1.0), jitter=0.0, grey=0.0, flip=0.0)
    image = gradient(32, 32)
    pixels = picture([{"image": image}], Augment(quiet, views=2, size=32, seed=0))
    tile = np.asarray(Image.fromarray(image.permute(1, 2, 0).numpy()).resize((96, 96), Image.Resampling.NEAREST))
    height, width = pixels.shape[0] - 96 + 1, pixels.shape[1] - 96 + 1
    found = [
        (top, left)
        for top in range(height)
        for left in range(width)
        if (pixels[top, left] == tile[0, 0]).all() and np.array_equal(pixels[top : top + 96, left : left + 96], tile)
    ]
    assert len(found) == 3, "with all randomness off, the views are the original"
    assert len({top for top, _ in found}) == 1


def test_views_change_with_sample_number_and_epoch() -> None:
    augment = Augment(POLICIES["cifar"], views=3, size=32, seed=0)
    shown = [
        picture([{"image": gradient(32, 32)}], augment, index=[index], epoch=epoch, names=["x"])
        for index, epoch in ((0, 0), (1, 0), (0, 1))
    ]
    assert not np.array_equal(shown[0], shown[1])
    assert not np.array_equal(shown[0], shown[2])


def test_images_of_differing_sizes_and_long_names_make_one_sheet() -> None:
    augment = Augment(POLICIES["moco-v2"], views=2, size=64, seed=0)
    images = [{"image": gradient(30, 200)}, {"image": gradient(90, 20)}]
    drawn = png(picture(images, augment, names=["a/" * 100 + "b.jpg", "c.jpg"]))
    with Image.open(io.BytesIO(drawn)) as saved:
        assert saved.format == "PNG"
        assert saved.width < 3 * (2 * 64 + 20), "a long name must not widen the sheet"


def test_the_size_of_a_tile_can_be_chosen_for_a_page() -> None:
    augment = Augment(POLICIES["moco-v2"], views=2, size=64, seed=0)
    large, small = (picture([{"image": gradient(50, 50)}], augment, tile=tile) for tile in (None, 20))
    assert small.shape[1] < large.shape[1]
    with Image.open(io.BytesIO(png(small))) as decoded:
        assert np.array_equal(np.asarray(decoded), small)


def test_a_colour_space_is_shown_in_false_colours_beside_each_view() -> None:
    quiet = replace(POLICIES["cmc"], scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0)
    augment = Augment(quiet, views=1, size=96, seed=0)
    pixels = picture([{"image": gradient(96, 96)}], augment, split="rgb")
    assert pixels.shape[1] == 8 + 4 * (96 + 8)  # original, view, R, GB
    red, green_and_blue = (pixels[28 : 28 + 96, 8 + column * 104 : 104 + column * 104] for column in (2, 3))
    assert np.array_equal(red[..., 0], red[..., 1])
    assert red[0, 0, 0] == 0
    assert red[0, -1, 0] == 255
    assert set(green_and_blue[..., 1].flatten().tolist()) == {128}
    assert green_and_blue[0, -1].tolist() == [255, 128, 0]  # blue is constant, so at its least
