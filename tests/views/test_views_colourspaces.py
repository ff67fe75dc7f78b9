"""Colour spaces against scikit-image, and the views that they split into."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from skimage import color
from torch import Tensor

from manyview.errors import UserError
from manyview.views.colourspaces import SPLITS, convert, split

REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "lab": color.rgb2lab,
    "luv": color.rgb2luv,
    "ydbdr": color.rgb2ydbdr,
    "yiq": color.rgb2yiq,
    "yuv": color.rgb2yuv,
    "ypbpr": color.rgb2ypbpr,
    "ycbcr": color.rgb2ycbcr,
    "rgb": lambda pixels, channel_axis: pixels,
    "cie-rgb": color.rgb2rgbcie,
    "xyz": color.rgb2xyz,
    "hsv": color.rgb2hsv,
    "hed": color.rgb2hed,
}


def edges_of_the_cube() -> Tensor:
    """(n, 3): every colour with two channels at 0 or 1, corners included."""
    line = torch.linspace(0, 1, 65)
    colours = []
    for free in range(3):
        for first in (0.0, 1.0):
            for second in (0.0, 1.0):
                fixed = [torch.full_like(line, first), torch.full_like(line, second)]
                colours.append(torch.stack([*fixed[:free], line, *fixed[free:]], -1))
    return torch.cat(colours)


def nearly_black() -> Tensor:
    """(n, 3): where gamma and lightness turn linear, and where logarithms would fail."""
    levels = torch.tensor([0.0, 1e-8, 1e-6, 2e-6, 1e-4, 0.001, 1 / 255, 0.0404, 0.04045, 0.0405, 0.09])
    return torch.cartesian_prod(levels, levels, levels)


def colours() -> Tensor:
    """(1, 3, n, 1)"""
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(4000, 3, generator=generator)
    eight_bit = torch.randint(0, 256, (4000, 3), generator=generator) / 255
    greys = torch.linspace(0, 1, 256).unsqueeze(1).expand(-1, 3)
    nearly_grey = (greys + 1e-3 * torch.rand(256, 3, generator=generator)).clamp(0, 1)
    return torch.cat((random, eight_bit, greys, nearly_grey, edges_of_the_cube(), nearly_black())).T[None, :, :, None]


def test_every_space_has_a_reference() -> None:
    assert set(REFERENCES) == set(SPLITS)


@pytest.mark.parametrize("name", SPLITS)
def test_conversions_agree_with_scikit_image(name: str) -> None:
    images = colours()
    expected = torch.from_numpy(np.asarray(REFERENCES[name](images.double().numpy(), channel_axis=1)))
    converted = convert(images, name)
    assert converted.dtype == torch.float32
    assert converted.shape == images.shape
    error = (converted - expected).abs().amax((0, 2, 3))
    extent = expected.amax((0, 2, 3)) - expected.amin((0, 2, 3))
    assert (extent > 0.1).all(), "the colours must span the space for the test to say something"
    assert (error < 1e-4 * extent).all(), (error / extent).tolist()


@pytest.mark.parametrize("name", SPLITS)
def test_bytes_are_converted_first(name: str) -> None:
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    precise = convert(images.double() / 255, name)
    assert precise.dtype == torch.float64
    torch.testing.assert_close(convert(images, name), precise.float(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", SPLITS)
def test_the_views_of_a_split_are_its_channels(name: str) -> None:
    images = torch.rand(2, 4, 3, 8, 6, generator=torch.Generator().manual_seed(2))
    views = split(images, name)
    first, rest = views.values()
    assert first.shape == (2, 4, 1, 8, 6)
    assert rest.shape == (2, 4, 2, 8, 6)
    assert torch.equal(torch.cat((first, rest), -3), convert(images, name))


def test_the_names_of_the_views() -> None:
    assert {name: tuple(each.views) for name, each in SPLITS.items() if name in {"lab", "ydbdr", "rgb", "hed"}} == {
        "lab": ("L", "ab"),
        "ydbdr": ("Y", "DbDr"),
        "rgb": ("R", "GB"),
        "hed": ("H", "ED"),
    }


def test_autocast_does_not_round_colours() -> None:
    images = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        converted = {name: convert(images, name) for name in SPLITS}
    assert all(torch.equal(converted[name], convert(images, name)) for name in SPLITS)


def test_an_unknown_space_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"colour space cmyk is not known: choose one of lab, .*ydbdr.*hed"):
        split(torch.rand(1, 3, 2, 2), "cmyk")
