"""The statistics that normalise views: what they measure, how they are kept, and what they refuse."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyview.data.scenes import Scenes
from manyview.data.source import track
from manyview.errors import UserError
from manyview.views.colourspaces import SPLITS, split
from manyview.views.statistics import Statistics, measure, measure_split, sampled


@cache
def scenes() -> Tensor:
    return Scenes(40, size=16).batch(torch.arange(40))


def measured(name: str) -> tuple[Statistics, Tensor]:
    images = scenes()
    return measure_split(images.split(7), name), images


@pytest.mark.parametrize("name", ["lab", "hsv", "ycbcr"])
def test_statistics_of_batches_are_those_of_all_pixels(name: str) -> None:
    statistics, images = measured(name)
    for view, pixels in split(images, name).items():
        channels = pixels.double().transpose(0, 1).flatten(1)
        torch.testing.assert_close(torch.tensor(statistics.mean[view]).double(), channels.mean(1), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            torch.tensor(statistics.std[view]).double(), channels.std(1, correction=0), rtol=1e-6, atol=0
        )


def test_normalised_views_have_zero_mean_and_unit_variance() -> None:
    statistics, images = measured("lab")
    for view in statistics.normalise(split(images, "lab")).values():
        channels = view.transpose(0, 1).flatten(1)
        torch.testing.assert_close(channels.mean(1), torch.zeros(len(channels)), atol=1e-4, rtol=0)
        torch.testing.assert_close(channels.std(1), torch.ones(len(channels)), atol=1e-3, rtol=0)


def test_once_normalised_the_television_spaces_are_one_but_for_a_sign() -> None:
    def normalised(name: str) -> Tensor:
        statistics, images = measured(name)
        return torch.cat(list(statistics.normalise(split(images, name)).values()), 1)

    expected = normalised("yuv")
    for name in ("ypbpr", "ycbcr", "ydbdr"):
        sign = torch.tensor([1.0, 1.0, -1.0 if name == "ydbdr" else 1.0]).view(3, 1, 1)
        # Standards print their matrices with three digits.
        torch.testing.assert_close(normalised(name) * sign, expected, atol=0.02, rtol=0)


def test_any_views_can_be_measured() -> None:
    depth = Scenes(10, size=16).view("depth", torch.arange(10))
    statistics = measure({"depth": part} for part in depth.split(3))
    assert statistics.mean["depth"][0] == pytest.approx(depth.double().mean().item())


def test_a_source_is_measured_on_a_sample_of_it() -> None:
    source = Scenes(500, size=8)
    chosen = sampled(len(source), 200, seed=0)
    batches = (source.batch(part) for part in chosen.split(64))
    few = measure_split(track(batches, "statistics"), "lab")
    every = measure_split([source.batch(torch.arange(500))], "lab")
    assert few.mean["L"][0] == pytest.approx(every.mean["L"][0], abs=0.2 * every.std["L"][0])


def test_a_sample_depends_on_the_seed_alone() -> None:
    first = sampled(1000, 100, seed=0)
    assert torch.equal(first, sampled(1000, 100, seed=0))
    assert not torch.equal(first, sampled(1000, 100, seed=1))
    assert len(first.unique()) == 100
    assert (first.diff() > 0).all(), "in the order of the source, which is how it is read fastest"
    assert torch.equal(sampled(50, 100, seed=0), torch.arange(50))


def test_statistics_survive_a_file(tmp_path: Path) -> None:
    statistics, _ = measured("ydbdr")
    path = tmp_path / "new" / "statistics.json"
    statistics.save(path)
    assert Statistics.load(path) == statistics
    assert [entry.name for entry in path.parent.iterdir()] == ["statistics.json"]


def statistics_file(path: Path, std: object) -> Path:
    path.write_text(json.dumps({"mean": {"L": [50.0], "ab": [0.0, 1.0]}, "std": std}))
    return path


@pytest.mark.parametrize(
    "std",
    [
        {"L": [1.0]},
        {"L": [1.0], "ab": [1.0]},
        {"L": [1.0], "ab": [1.0, 0.0]},
        {"L": [1.0], "ab": [1.0, float("nan")]},
        {"L": [1.0], "ab": [1.0, "wide"]},
        {"L": [1.0], "ab": None},
        [1.0],
        None,
    ],
)
def test_a_spoilt_file_is_named(tmp_path: Path, std: object) -> None:
    path = statistics_file(tmp_path / "spoilt.json", std)
    with pytest.raises(UserError, match=r"spoilt\.json holds no statistics of views"):
        Statistics.load(path)


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.json cannot be read \(No such file"):
        Statistics.load(tmp_path / "absent.json")
    (tmp_path / "cut.json").write_text('{"mean": {"L"')
    with pytest.raises(UserError, match=r"cut\.json holds no statistics"):
        Statistics.load(tmp_path / "cut.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(UserError, match=r"bytes\.json holds no statistics"):
        Statistics.load(tmp_path / "bytes.json")


def test_statistics_of_other_views_are_refused() -> None:
    statistics, images = measured("lab")
    with pytest.raises(UserError, match=r"view Y has 1 channels, and the statistics, of L, ab, know 0 of it"):
        statistics.normalise(split(images, "yuv"))


def test_grey_images_have_no_colour_to_normalise() -> None:
    greys = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
    for name in ("lab", "ydbdr", "hsv"):
        with pytest.raises(UserError, match=f"grey, so that {name} has|same in all pixels"):
            measure_split([greys.expand(-1, 3, -1, -1)], name)


@pytest.mark.parametrize("name", SPLITS)
def test_images_with_colours_can_be_normalised_in_every_space(name: str) -> None:
    assert measured(name)[0].std.keys() == SPLITS[name].views.keys()


def test_a_constant_view_is_refused() -> None:
    with pytest.raises(UserError, match="a channel of view depth is the same in all pixels"):
        measure([{"depth": torch.full((2, 1, 7, 7), 3.3)}])


def test_nothing_cannot_be_measured() -> None:
    with pytest.raises(UserError, match="no images"):
        measure_split([], "lab")
