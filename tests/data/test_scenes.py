"""The procedural set: purity, geometry against closed forms, labels that only shapes give away, difficulty, speed."""

import time
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.data import scenes
from manyview.data.scenes import DISTRACTOR, KINDS, VIEWS, Scenes, kinds, render
from manyview.data.source import Source
from manyview.fields import FIELDS

BALL_RADIUS = 0.75  # of the sphere, in units of its scale
BEHIND_ANY_SOLID = 3.4  # depth: the solids end before it, cut-outs and wall begin behind it


@cache
def rendered(count: int, size: int = 32) -> dict[str, Tensor]:
    return render(0, torch.arange(count), size=size)


def on_solid(segmentation: Tensor) -> Tensor:
    return (segmentation > 0) & (segmentation < DISTRACTOR)


@pytest.mark.parametrize("view", VIEWS)
def test_a_scene_is_the_same_bits_in_any_batch(view: str) -> None:
    whole = rendered(300)[view]
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    for size in (1, 7, 29):
        chosen = order[: 3 * size]
        parts = torch.cat([render(0, part, views=(view,))[view] for part in torch.split(chosen, size)])
        assert torch.equal(parts, whole[chosen])


def test_views_have_the_announced_types_and_shapes() -> None:
    views = render(3, torch.arange(5), size=20)
    assert {name: (view.dtype, tuple(view.shape)) for name, view in views.items()} == {
        "rgb": (torch.uint8, (5, 3, 20, 20)),
        "depth": (torch.float32, (5, 1, 20, 20)),
        "normals": (torch.float32, (5, 3, 20, 20)),
        "segmentation": (torch.uint8, (5, 1, 20, 20)),
    }
    assert all(view.is_contiguous() for view in views.values())
    assert render(0, torch.arange(0))["rgb"].shape == (0, 3, 32, 32)
    with pytest.raises(ValueError, match="flow"):
        render(0, torch.arange(1), views=("flow",))


def test_another_seed_is_another_set() -> None:
    index = torch.arange(200)
    assert not torch.equal(kinds(0, index), kinds(1, index))
    assert not torch.equal(render(0, index[:4], views=("rgb",))["rgb"], render(1, index[:4], views=("rgb",))["rgb"])


def test_source_serves_what_render_makes() -> None:
    source = Scenes(50, seed=2, size=16)
    index = torch.tensor([7, 0, 49])
    expected = render(2, index, size=16)
    assert (len(source), source.size, source.classes) == (50, (16, 16), tuple(KINDS))
    assert torch.equal(source.labels, kinds(2, torch.arange(50)))
    assert torch.equal(source.batch(index)["image"], expected["rgb"])
    assert torch.equal(source.read(49)["image"], expected["rgb"][2])
    with pytest.raises(IndexError, match="50 samples"):
        source.read(50)


def test_fields_hold_what_render_makes() -> None:
    names = ("normals", "image", "depth", "segmentation")
    source, index = Scenes(50, seed=2, size=16).select(names), torch.tensor([7, 0, 49])
    expected, found = render(2, index, size=16), source.batch(index)
    assert tuple(found) == source.selected == names
    assert {name: (field.dtype, field.shape[1]) for name, field in found.items()} == {
        name: (FIELDS[name].dtype, FIELDS[name].channels) for name in names
    }
    assert torch.equal(found["image"], expected["rgb"])
    normals, depth = (FIELDS[name].values(found[name]) for name in ("normals", "depth"))
    torch.testing.assert_close(normals, expected["normals"], atol=1 / 127, rtol=0)
    torch.testing.assert_close(depth, expected["depth"], atol=0.51e-3, rtol=0)
    wall, solid, cutouts = (found["segmentation"] == kind for kind in (2, 3, 1))
    labels = expected["segmentation"]
    assert torch.equal(wall, labels == 0)
    assert torch.equal(cutouts, labels == DISTRACTOR)
    assert torch.equal(solid, ~wall & ~cutouts), "the number of a solid does not tell its kind"


def test_fingerprint_tells_sets_apart() -> None:
    sets: list[Source] = [Scenes(50), Scenes(60), Scenes(50, split="test"), Scenes(50, seed=1), Scenes(50, size=64)]
    sets += [Scenes(50).select(names) for names in (("depth",), ("image", "depth"))]
    assert len({each.fingerprint for each in sets}) == len(sets)
    assert Scenes(50).fingerprint == sets[0].fingerprint


def test_splits_are_disjoint() -> None:
    train, test = Scenes(64), Scenes(64, split="test")
    assert {train.id(i) for i in range(64)}.isdisjoint({test.id(i) for i in range(64)})
    images = torch.cat([train.batch(torch.arange(64))["image"], test.batch(torch.arange(64))["image"]]).flatten(1)
    assert len(images.unique(dim=0)) == 128
    with pytest.raises(ValueError, match="validation"):
        Scenes(split="validation")


def test_labels_are_balanced() -> None:
    counts = Scenes().labels.bincount(minlength=len(KINDS))
    assert len(KINDS) >= 10
    assert (counts - 1000).abs().max() < 4 * 30  # a count's standard deviation is 30


def test_nuisance_does_not_tell_the_label() -> None:
    """Per class, the mean of a nuisance stays within 4.5 standard errors of the mean of all."""
    count = 30_000
    scene = scenes._draw(0, torch.arange(count))
    nuisance = [scene.pose, scene.scale, scene.centre, scene.depth, scene.light, scene.ambient, scene.noise]
    for texture in (scene.texture, scene.wall):
        nuisance += [texture.pattern, texture.colours, texture.sharpness]
    nuisance += [part for cutout in scene.cutouts for part in (cutout.size, cutout.position, cutout.outline)]
    values = torch.cat([parameter.double().reshape(-1, count) for parameter in nuisance])
    values = (values - values.mean(1, keepdim=True)) / values.std(1, keepdim=True)
    member = F.one_hot(scene.kind, len(KINDS)).double()
    errors = (values @ member) / member.sum(0).sqrt()
    assert errors.abs().max() < 4.5


def test_background_colour_does_not_tell_the_label() -> None:
    views, labels = rendered(1000), kinds(0, torch.arange(1000))
    wall = (views["segmentation"] == 0).double()
    colour = (views["rgb"] * wall).sum((2, 3)) / wall.sum((2, 3))
    member = F.one_hot(labels, len(KINDS)).double()
    errors = ((colour - colour.mean(0)) / colour.std(0)).T @ member / member.sum(0).sqrt()
    assert errors.abs().max() < 4.5


def test_each_image_holds_one_solid_of_its_kind_large_enough_to_see() -> None:
    segmentation, labels = rendered(1000)["segmentation"], kinds(0, torch.arange(1000))
    solid = on_solid(segmentation)
    assert torch.equal(segmentation.where(solid, 0).amax((1, 2, 3)).long(), 1 + labels)
    assert torch.equal(segmentation.where(solid, 255).amin((1, 2, 3)).long(), 1 + labels)
    assert solid.float().mean((1, 2, 3)).min() > 0.03
    assert (segmentation == DISTRACTOR).flatten(1).any(1).float().mean() > 0.8


def test_segmentation_depth_and_normals_agree_on_what_is_where() -> None:
    views = rendered(1000)
    solid = on_solid(views["segmentation"])
    assert torch.equal(solid, views["depth"] < BEHIND_ANY_SOLID)
    cutout = (views["segmentation"] == DISTRACTOR).expand(-1, 3, -1, -1)
    towards_camera = torch.tensor([0.0, 0.0, 1.0]).view(1, 3, 1, 1).expand(1000, -1, 32, 32)
    assert torch.equal(views["normals"][cutout], towards_camera[cutout])


def test_normals_are_unit_vectors_that_face_the_camera() -> None:
    normals = rendered(1000)["normals"]
    assert (normals.norm(dim=1) - 1).abs().max() < 1e-5
    assert normals[:, 2].min() > 0


def test_a_ball_has_the_depth_and_normals_of_its_closed_form() -> None:
    index = torch.arange(400)
    index = index[kinds(0, index) == list(KINDS).index("sphere")]
    views, scene, size = render(0, index, size=48), scenes._draw(0, index), 48
    axis = (torch.arange(size) + 0.5) * 2 / size - 1
    radius = (BALL_RADIUS * scene.scale)[:, None, None]
    x = (axis[None, None, :] - scene.centre[0, :, None, None]) / radius
    y = (-axis[None, :, None] - scene.centre[1, :, None, None]) / radius
    height = (1 - x.square() - y.square()).clamp(min=0).sqrt()
    inner = height > 0.2
    depth = scene.depth[:, None, None] - height * radius
    normals = torch.stack(torch.broadcast_tensors(x, y, height), 1)
    assert (views["depth"][:, 0] - depth)[inner].abs().max() < 1e-4
    assert (views["normals"] - normals).abs().amax(1)[inner].max() < 1e-2
    outside = x.square() + y.square() > 1.02
    assert not on_solid(views["segmentation"])[:, 0][outside].any()
    assert on_solid(views["segmentation"])[:, 0][inner].all()


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_of_the_depth_are_those_of_the_normals(kind: str) -> None:
    index = torch.arange(120)
    index = index[kinds(0, index) == list(KINDS).index(kind)]
    size = 96
    views = render(0, index, size=size, views=("depth", "normals", "segmentation"))
    depth, normals, solid = views["depth"][:, 0], views["normals"], on_solid(views["segmentation"])[:, 0]
    left, here, right = slice(0, -2), slice(1, -1), slice(2, None)
    measured = (depth[:, :, right] - depth[:, :, left]) / (4 / size)
    expected = (normals[:, 0] / normals[:, 2])[:, :, here]
    # On one smooth side of the solid, seen not too flat.
    smooth = (normals[..., left] * normals[..., right]).sum(1) > 0.99
    smooth &= solid[:, :, left] & solid[:, :, right] & (normals[:, 2, :, here] > 0.3)
    assert smooth.sum() > 500
    assert (measured - expected)[smooth].abs().quantile(0.98) < 0.05


def test_size_changes_the_resolution_and_not_the_scene() -> None:
    small, large = rendered(100), rendered(100, size=64)
    shrunk = F.avg_pool2d(large["rgb"].float(), 2)
    assert (shrunk - small["rgb"]).abs().mean() < 8
    covered = F.avg_pool2d(on_solid(large["segmentation"]).float(), 2)
    agrees = (covered - on_solid(small["segmentation"]).float()).abs() < 0.75
    assert agrees.float().mean() > 0.995


def test_rgb_shows_the_solid_where_the_segmentation_has_it() -> None:
    """Silhouettes of strong contrast: brightness steps across the solid's border, hardly elsewhere on the wall."""
    views = rendered(1000)
    grey, segmentation = views["rgb"].float().mean(1), views["segmentation"][:, 0]
    step = (grey[:, :, 1:] - grey[:, :, :-1]).abs()
    before, after = segmentation[:, :, :-1], segmentation[:, :, 1:]
    across = on_solid(before) != on_solid(after)
    within_wall = (before == 0) & (after == 0)
    assert step[across].mean() > 3 * step[within_wall].mean()


def test_comparing_pixels_does_not_solve_it() -> None:
    """Weighted kNN as in the evaluation, k = 200, with all of the training images; each image less its mean."""
    train, test = Scenes(10_000), Scenes(1000, split="test")
    bank, queries = (
        F.normalize(
            (pixels := source.batch(torch.arange(len(source)))["image"].flatten(1) / 255) - pixels.mean(1, keepdim=True)
        )
        for source in (train, test)
    )
    near, index = (queries @ bank.T).topk(200)
    votes = torch.zeros(1000, len(KINDS)).scatter_add_(1, train.labels[index], torch.exp(near / 0.07))
    accuracy = (votes.argmax(1) == test.labels).float().mean()
    assert 0.2 < accuracy < 0.5


def test_rendering_is_fast_enough_to_be_done_at_start() -> None:
    """A tenth of the set's 10,000 images of 32 × 32, with room for a busy machine."""
    render(0, torch.arange(256), views=("rgb",))
    began = time.perf_counter()
    render(0, torch.arange(1000), views=("rgb",))
    assert time.perf_counter() - began < 9


@pytest.mark.slow
def test_ten_thousand_images_take_less_than_thirty_seconds() -> None:
    began = time.perf_counter()
    Scenes().batch(torch.arange(10_000))
    assert time.perf_counter() - began < 30
