"""The statistics that normalise views: what they measure, and what they refuse."""

from functools import cache

import pytest
import torch
from torch import Tensor

from manyview.data.scenes import Scenes, render
from manyview.errors import UserError
from manyview.views.colourspaces import SPLITS, split
from manyview.views.statistics import Statistics, mean_chroma, measure, refuse_grey, sampled


@cache
def scenes() -> Tensor:
    return Scenes(40, size=16).batch(torch.arange(40))["image"]


def measured(name: str) -> tuple[Statistics, Tensor]:
    images = scenes()
    return measure(split(part, name) for part in images.split(7)), images


@pytest.mark.parametrize("name", ["lab", "hsv", "ycbcr"])
def test_statistics_of_batches_are_those_of_all_pixels(name: str) -> None:
    statistics, images = measured(name)
    for view, pixels in split(images, name).items():
        channels = pixels.double().transpose(0, 1).flatten(1)
        torch.testing.assert_close(torch.tensor(statistics.mean[view]).double(), channels.mean(1), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            torch.tensor(statistics.std[view]).double(), channels.std(1, correction=0), rtol=1e-6, atol=0
        )


def test_once_normalised_the_television_spaces_are_one_but_for_a_sign() -> None:
    def normalised(name: str) -> Tensor:
        statistics, images = measured(name)
        mean, std = (
            torch.tensor([number for view in table.values() for number in view]).view(3, 1, 1)
            for table in (statistics.mean, statistics.std)
        )
        return (torch.cat(list(split(images, name).values()), 1) - mean) / std

    expected = normalised("yuv")
    for name in ("ypbpr", "ycbcr", "ydbdr"):
        sign = torch.tensor([1.0, 1.0, -1.0 if name == "ydbdr" else 1.0]).view(3, 1, 1)
        # Standards print their matrices with three digits.
        torch.testing.assert_close(normalised(name) * sign, expected, atol=0.02, rtol=0)


def test_any_views_can_be_measured() -> None:
    depth = render(0, torch.arange(10), size=16, views=("depth",))["depth"]
    statistics = measure({"depth": part} for part in depth.split(3))
    assert statistics.mean["depth"][0] == pytest.approx(depth.double().mean().item())


def test_a_source_is_measured_on_a_sample_of_it() -> None:
    source = Scenes(500, size=8)
    chosen = sampled(len(source), 200, seed=0)
    few = measure(split(source.batch(part)["image"], "lab") for part in chosen.split(64))
    every = measure([split(source.batch(torch.arange(500))["image"], "lab")])
    assert few.mean["L"][0] == pytest.approx(every.mean["L"][0], abs=0.2 * every.std["L"][0])


def test_a_sample_depends_on_the_seed_alone() -> None:
    first = sampled(1000, 100, seed=0)
    assert torch.equal(first, sampled(1000, 100, seed=0))
    assert not torch.equal(first, sampled(1000, 100, seed=1))
    assert len(first.unique()) == 100
    assert (first.diff() > 0).all(), "in the order of the source, which is how it is read fastest"
    assert torch.equal(sampled(50, 100, seed=0), torch.arange(50))


def test_images_are_grey_if_their_channels_differ_by_rounding_alone() -> None:
    greys = torch.randint(0, 255, (4, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
    greys = greys.repeat(1, 3, 1, 1)
    rounded = greys.clone()
    rounded[:, 1, ::2, ::2] += 1
    for images in (greys, rounded):
        with pytest.raises(UserError, match="the images are grey, so that lab has nothing to split"):
            refuse_grey([mean_chroma(images)], "lab")
    refuse_grey([mean_chroma(scenes()), 0.0], "lab")  # some images may be


def test_chroma_is_how_far_channels_differ() -> None:
    images = torch.tensor([10, 200, 30], dtype=torch.uint8).view(1, 3, 1, 1).repeat(2, 1, 1, 2)
    images[1] = 7
    assert mean_chroma(images) == pytest.approx((190 + 0) / 2)


@pytest.mark.parametrize("name", SPLITS)
def test_images_with_colours_can_be_normalised_in_every_space(name: str) -> None:
    assert measured(name)[0].std.keys() == SPLITS[name].views.keys()


def test_a_constant_view_is_refused() -> None:
    with pytest.raises(UserError, match="a channel of view depth is the same in all pixels"):
        measure([{"depth": torch.full((2, 1, 7, 7), 3.3)}])


def test_nothing_cannot_be_measured() -> None:
    with pytest.raises(UserError, match="no images"):
        measure([])
    with pytest.raises(UserError, match="none of the samples that were looked at has the view depth: leave it out"):
        measure([{"L": torch.rand(2, 1, 4, 4), "depth": torch.rand(0, 1, 4, 4)}])
