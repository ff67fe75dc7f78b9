"""All fields of a sample are cut and mirrored alike, and their geometry stays true."""

from functools import cache
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2.functional import resized_crop

from manyview.data import Loader, Subset
from manyview.data.scenes import Scenes
from manyview.fields import FIELDS, Field
from manyview.views import POLICIES, Augment, Group, Plan

SIZE = 64
SAMPLES = 24
ALL = ("image", "depth", "normals", "segmentation")
SOLIDS_END = 3.42  # depth: solids lie before, cut-outs and wall behind


@cache
def scenes() -> dict[str, Tensor]:
    return Scenes(SAMPLES, size=SIZE).select(ALL).batch(torch.arange(SAMPLES))


def made(size: int, *, views: int = 1, **plan: Tensor) -> tuple[dict[str, Tensor], Augment, Plan]:
    """Views of the scenes as training draws them, but for what `plan` says: (V·N, c, size, size) by name."""
    augment = Augment(POLICIES["cmc"], views=views, size=size, seed=0, fields=ALL)
    drawn = augment.plan(torch.arange(SAMPLES), 0)._replace(**plan)
    found = augment.values(augment.apply(scenes(), drawn))
    return {name: view.flatten(0, 1) for name, view in found.items()}, augment, drawn


def whole(*, flip: bool) -> dict[str, Tensor]:
    area, ratio = torch.ones(SAMPLES, 1, 10), torch.zeros(SAMPLES, 1, 10)
    return made(SIZE, area=area, ratio=ratio, flip=torch.full((SAMPLES, 1), flip))[0]


@pytest.mark.parametrize("flip", [False, True])
def test_normals_are_those_of_the_mirrored_surface(flip: bool) -> None:
    """Where a surface leans to the right, its depth grows to the right."""
    crops = whole(flip=flip)
    reach, inner = 4, slice(4, -4)
    depth = crops["depth"][:, 0]
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
    crops, _augment, _plan = made(size)
    solid, near = crops["segmentation"] == 3, crops["depth"] < SOLIDS_END
    assert solid.any(3).any(2).float().mean() > 0.9
    assert torch.equal(solid, near), "every pixel is one of the scene, at the same place in all fields"


def test_images_are_torchvisions_crops_and_other_fields_its_nearest_ones() -> None:
    crops, augment, plan = made(40, views=2)
    boxes = augment.boxes(plan, SIZE, SIZE).transpose(0, 1).flatten(0, 1)
    for number, box in enumerate(boxes.tolist()):
        for name, view in crops.items():
            field = FIELDS[name]
            whole = field.values(scenes()[name][number % SAMPLES])
            how = InterpolationMode.NEAREST_EXACT if field.nearest else InterpolationMode.BILINEAR
            expected = resized_crop(whole, *box, [40, 40], how)
            if plan.flip.T.flatten()[number]:
                expected = expected.flip(-1)
                expected[0] *= -1 if name == "normals" else 1
            torch.testing.assert_close(view[number], expected, atol=1e-4 if name == "image" else 0, rtol=0)


def test_workers_that_cut_one_by_one_give_the_same_views() -> None:
    augment = Augment(POLICIES["cmc"], views=2, size=32, seed=0, fields=ALL)
    numbers = torch.arange(SAMPLES)
    samples = [{name: field[number] for name, field in scenes().items()} for number in range(SAMPLES)]
    together, apart = augment.apply(scenes(), augment.plan(numbers, 3)), augment.views_of(samples, numbers.tolist(), 3)
    for name, view in together.items():
        assert view.shape == (2, SAMPLES, FIELDS[name].channels, 32, 32)
        assert view.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
        # Cut crops of images are rounded to whole numbers, and divided by deviations.
        assert (apart[name] - view).abs().mean() < 0.01 if name == "image" else torch.equal(apart[name], view)


def test_samples_without_a_field_are_refused() -> None:
    augment = Augment(POLICIES["cmc"], views=1, size=16, seed=0, fields=("image", "depth"))
    with pytest.raises(KeyError, match="depth"):
        augment.apply({"image": scenes()["image"]}, augment.plan(torch.arange(SAMPLES), 0))
    with pytest.raises(ValueError, match=r"depth is torch.uint8 .*, but a whole field would be torch.uint16"):
        augment.apply(scenes() | {"depth": scenes()["depth"].to(torch.uint8)}, augment.plan(torch.arange(SAMPLES), 0))


def test_a_field_of_a_new_kind_is_a_line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Antialiased, without changes of colour, one channel negated in a mirror: as a flow would be."""
    flow = Field(2, torch.uint8, 1.0, show=lambda x: x, offset=-128.0, negated=0)
    monkeypatch.setitem(FIELDS, "flow", flow)
    augment = Augment(POLICIES["simclr"], views=2, size=24, seed=0, fields=("flow",))
    stored, index = torch.randint(0, 256, (8, 2, 40, 30), dtype=torch.uint8), torch.arange(8)
    plan = augment.plan(index, 0)
    whole, cut = augment.apply({"flow": stored}, plan), augment.views_of([{"flow": x} for x in stored], range(8), 0)
    for sample, view in product(range(8), range(2)):
        box = augment.boxes(plan, 40, 30)[sample, view].tolist()
        expected = resized_crop(stored[sample].float(), *box, [24, 24]) - 128
        if plan.flip[sample, view]:
            expected = expected.flip(-1) * torch.tensor([-1.0, 1.0]).view(2, 1, 1)
        torch.testing.assert_close(whole["flow"][view, sample], expected, atol=1e-2, rtol=0)
        assert (cut["flow"][view, sample] - expected).abs().max() < 1.01


def test_groups_of_views_differ_in_size_and_scale() -> None:
    small = Group(4, 16, "small", (0.05, 0.2))
    both = Augment(POLICIES["moco-v2"], views=2, size=40, seed=3, fields=("image", "depth"), more=[small])
    alone = Augment(POLICIES["moco-v2"], views=2, size=40, seed=3, fields=("image", "depth"))
    fields, index = {name: scenes()[name] for name in both.fields}, torch.arange(SAMPLES)
    plan = both.plan(index, 1)
    views = both.apply(fields, plan)
    assert {name: view.shape[:2] + view.shape[3:] for name, view in views.items()} == {
        "image": (2, SAMPLES, 40, 40), "depth": (2, SAMPLES, 40, 40),
        "image.small": (4, SAMPLES, 16, 16), "depth.small": (4, SAMPLES, 16, 16),
    }  # fmt: skip
    before = alone.apply(fields, alone.plan(index, 1))
    assert all(torch.equal(views[name], before[name]) for name in before), "a further group changes no other"
    areas = both.boxes(plan, SIZE, SIZE)[..., 2:].prod(-1) / SIZE**2
    assert areas[:, 2:].max() < 0.22 < areas[:, :2].max()
    half = both.apply({name: field[5:9] for name, field in fields.items()}, both.plan(index[5:9], 1))
    assert all(torch.equal(half[name], view[:, 5:9]) for name, view in views.items())
    with pytest.raises(ValueError, match="groups of views need names of their own"):
        Augment(POLICIES["cmc"], views=1, size=16, seed=0, more=[Group(1, 8)])


@pytest.mark.parametrize("workers", [0, 2])
def test_groups_are_cut_by_workers_too(workers: int) -> None:
    scenes = Scenes(12, size=32).select(("image", "depth"))
    whole, source = scenes.batch(torch.arange(12)), Subset(scenes, torch.arange(12))
    source.size = None  # so that samples are read one by one
    augment = Augment(POLICIES["cmc"], views=1, size=24, seed=3, fields=source.selected, more=[Group(2, 8, "small")])
    for batch in Loader(source, batch_size=4, seed=0, stop=3, workers=workers, crop=augment.crop):
        assert batch.cut
        assert {name: tuple(crops.shape[1:]) for name, crops in batch.fields.items()} == {
            "image": (1, 3, 24, 24), "depth": (1, 1, 24, 24), "image.small": (2, 3, 8, 8), "depth.small": (2, 1, 8, 8)
        }  # fmt: skip
        plan = augment.plan(batch.index, batch.epoch)
        views = augment.apply(batch.fields, plan, cut=True)
        expected = augment.apply({name: field[batch.index] for name, field in whole.items()}, plan)
        for name, view in views.items():
            assert (view - expected[name]).abs().max() < (0.05 if "image" in name else 1e-9)
