"""What `collect` shows of a source: with real views and a real, untrained encoder."""

import pytest
import torch
from torch import Tensor

from manyview.data.source import Arrays, Source, Unreadable
from manyview.encoders import EncoderConfig, FrozenEncoder, build_encoder, random_like
from manyview.report import Pictures, collect
from manyview.views import Augment, Policy

BROKEN = 3


class Patches(Arrays):
    """Smooth random patches of one size; classes differ in their colour."""

    name, size, fingerprint = "patches", (32, 32), "0"
    classes = ("red", "green", "blue")

    def __init__(self, count: int = 40) -> None:
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.arange(count) % 3
        coarse = torch.rand(count, 3, 4, 4, generator=generator) * 0.4
        coarse[torch.arange(count), self.labels] += 0.6
        self.images = torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear").mul(255).byte()
        self.arrays = {"image": self.images}


class Photos(Source):
    """The same in various sizes, without labels, with one broken file."""

    name, size, fingerprint = "photos", None, "0"

    def __init__(self) -> None:
        self.patches = Patches()

    def __len__(self) -> int:
        return len(self.patches)

    def id(self, index: int) -> str:
        return f"{index}.jpg"

    def read(self, index: int) -> dict[str, Tensor]:
        if index == BROKEN:
            raise Unreadable("truncated")
        image = self.patches.read(index)["image"][None].float()
        return {"image": torch.nn.functional.interpolate(image, (40 + index, 300), mode="bilinear")[0].byte()}


@pytest.fixture(scope="module")
def encoder() -> FrozenEncoder:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    built = build_encoder(EncoderConfig(backbone="tiny"), image_size=32)
    return FrozenEncoder.of(built, image_size=32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


def augment(views: int = 3) -> Augment:
    """Crops and flips that keep the colours, by which patches can be told apart."""
    return Augment(Policy(jitter=0, grey=0, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)), views=views, size=32, seed=0)


def gather(source: Source, encoder: FrozenEncoder) -> Pictures:
    return collect(
        source, augment(), encoder, random_like(encoder, 1), rows=2, pairs=20, queries=4, neighbours=5, pool=30
    )


def test_a_labelled_source_of_one_size(encoder: FrozenEncoder) -> None:
    pictures = gather(Patches(), encoder)
    assert [len(row.views) for row in pictures.views] == [3, 3]
    assert pictures.views[0].views[0].shape == (3, 32, 32)
    assert pictures.views[0].views[0].dtype == torch.uint8
    assert list(pictures.geometry) == ["trained", "random"]
    assert pictures.pool == 30
    geometry = pictures.geometry["trained"]
    assert (len(geometry.same), len(geometry.different)) == (20, 190)
    assert geometry.separation > 0.6  # patches differ more than the views of one
    assert geometry.agreement is not None
    assert geometry.agreement > 0.6  # colour is the label
    assert {row.query.label for row in pictures.neighbours[:3]} == {"red", "green", "blue"}
    for row in pictures.neighbours:
        assert len(row.neighbours) == 5
        assert row.query.name not in {sample.name for sample in row.neighbours}
        assert list(row.similarities) == sorted(row.similarities, reverse=True)


def test_views_are_shown_as_the_encoder_meets_them() -> None:
    # Colours by which a wrong normalisation would show, and a crop that is the whole image.
    still = Policy(scale=(1, 1), ratio=(1, 1), flip=0, jitter=0, grey=0, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    row = collect(Patches(), Augment(still, views=2, size=32, seed=0), rows=1).views[0]
    assert (row.views[1].int() - row.sample.image.int()).abs().max() <= 1


def test_photographs_of_various_sizes_without_labels(encoder: FrozenEncoder) -> None:
    pictures = gather(Photos(), encoder)
    assert f"{BROKEN}.jpg" not in {row.sample.name for row in pictures.views}
    assert all(max(row.sample.image.shape) <= 128 for row in pictures.views)
    assert pictures.geometry["trained"].agreement is None
    assert pictures.neighbours[0].query.label is None
    assert len(pictures.neighbours) == 4


def test_a_broken_image_is_passed_over(encoder: FrozenEncoder) -> None:
    pictures = collect(Photos(), augment(), encoder, rows=40, pairs=40, queries=40, neighbours=50, pool=40)
    assert len(pictures.views) == 39
    assert pictures.pool == 39
    assert len(pictures.geometry["trained"].same) == 39
    shown = {sample.name for row in pictures.neighbours for sample in (row.query, *row.neighbours)}
    assert shown == {f"{n}.jpg" for n in range(40) if n != BROKEN}


def test_without_an_encoder_only_views_are_shown() -> None:
    pictures = collect(Patches(), augment())
    assert len(pictures.views) == 6
    assert not pictures.geometry
    assert not pictures.neighbours


def test_a_single_view_has_no_geometry(encoder: FrozenEncoder) -> None:
    pictures = collect(Patches(), augment(views=1), encoder, pairs=4, queries=1, pool=10)
    assert not pictures.geometry
    assert len(pictures.neighbours) == 1


def test_the_choice_is_the_same_each_time(encoder: FrozenEncoder) -> None:
    first, second = gather(Patches(), encoder), gather(Patches(), encoder)
    assert [row.sample.name for row in first.views] == [row.sample.name for row in second.views]
    assert torch.equal(first.geometry["trained"].same, second.geometry["trained"].same)
    assert [row.similarities for row in first.neighbours] == [row.similarities for row in second.neighbours]
