"""Views that are cropped and flipped together show the same place, and their geometry stays true."""

import math
from fractions import Fraction
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2.functional import resized_crop

from manyview.data.scenes import DISTRACTOR, render
from manyview.views import RECIPES, Augment
from manyview.views.together import crop_together

SIZE = 64
SAMPLES = 24
SOLIDS_END = 3.42  # depth: solids lie before, cut-outs and wall behind


@cache
def scenes() -> dict[str, Tensor]:
    return render(0, torch.arange(SAMPLES), size=SIZE)


def whole(samples: int, *, flip: bool) -> tuple[Tensor, Tensor]:
    return torch.tensor([0, 0, SIZE, SIZE]).expand(samples, 4), torch.full((samples,), flip)


def drawn(size: int) -> tuple[Tensor, Tensor]:
    """Boxes and flips as training draws them."""
    augment = Augment(RECIPES["moco-v2"], views=1, size=size, seed=0)
    plan = augment.plan(torch.arange(SAMPLES), 0)
    return augment.boxes(plan, SIZE, SIZE)[:, 0], plan.flip[:, 0]


def normals_of_depth(depth: Tensor) -> Tensor:
    """What central differences say: (N, 1, H, W) -> (N, 3, H − 2, W − 2). The image is 2 wide, and y points up."""
    pixel = 2 / depth.shape[-1]
    x = (depth[..., 1:-1, 2:] - depth[..., 1:-1, :-2]) / (2 * pixel)
    y = (depth[..., :-2, 1:-1] - depth[..., 2:, 1:-1]) / (2 * pixel)
    return F.normalize(torch.cat((x, y, torch.ones_like(x)), 1), dim=1)


def smooth_places(normals: Tensor) -> Tensor:
    """(N, H − 2, W − 2): neither a silhouette nor a crease nearby, where differences would say nothing."""
    inner = normals[..., 1:-1, 1:-1]
    around = [normals[..., top : top + SIZE - 2, left : left + SIZE - 2] for top in range(3) for left in range(3)]
    alike = torch.stack([(inner * other).sum(1) for other in around]).amin(0) > 0.97
    return alike & (inner[:, 2] > 0.5)


@pytest.mark.parametrize("flip", [False, True])
def test_normals_are_those_of_the_mirrored_surface(flip: bool) -> None:
    crops = crop_together(scenes(), *whole(SAMPLES, flip=flip), SIZE)
    places = smooth_places(crops["normals"])
    segmentation = crops["segmentation"][:, 0]
    same = (segmentation.unfold(1, 3, 1).unfold(2, 3, 1) == segmentation[:, 1:-1, 1:-1, None, None]).all(-1).all(-1)
    places &= same
    expected = normals_of_depth(crops["depth"])
    agreement = (crops["normals"][..., 1:-1, 1:-1] * expected).sum(1)[places]
    assert len(agreement) > 0.5 * SAMPLES * SIZE**2
    assert agreement.quantile(0.01) > 0.99
    x = crops["normals"][:, :1, 1:-1, 1:-1]
    mirrored = torch.cat((-x, crops["normals"][:, 1:, 1:-1, 1:-1]), 1)
    assert (mirrored * expected).sum(1)[places].mean() < 0.95, "the test must see the sign of x"


def test_a_flip_is_a_mirror_of_the_crop() -> None:
    boxes, _ = drawn(48)
    plain, flipped = (crop_together(scenes(), boxes, torch.full((SAMPLES,), flip), 48) for flip in (False, True))
    sign = torch.tensor([-1.0, 1.0, 1.0]).view(3, 1, 1)
    for name, view in flipped.items():
        mirrored = plain[name].flip(-1) * (sign if name == "normals" else 1)
        torch.testing.assert_close(view, mirrored.to(view.dtype), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [24, 64, 96])
def test_the_edges_of_all_views_coincide(size: int) -> None:
    boxes, flip = drawn(size)
    crops = crop_together(scenes(), boxes, flip, size)
    segmentation = crops["segmentation"].float()
    solid = (segmentation > 0) & (segmentation < DISTRACTOR)
    near = crops["depth"] < SOLIDS_END
    reach = max(1, math.ceil(size / int(boxes[:, 2:].min()) / 2))  # half an old pixel, in new ones
    highest, lowest = (sign * F.max_pool2d(sign * solid.float(), 2 * reach + 1, 1, reach) for sign in (1, -1))
    edge = highest != lowest
    assert solid.any((1, 2, 3)).all()
    assert not (solid != near)[~edge].any(), "depth and labels part only at an edge"
    assert (solid != near)[edge].float().mean() < 0.25


@pytest.mark.parametrize("size", [20, 64, 100])
def test_all_views_show_the_same_place(size: int) -> None:
    """Every view holds the number of its column or row, so that each crop tells where it was cut."""
    line = torch.arange(SIZE).float()
    column, row = line.expand(SAMPLES, 1, SIZE, SIZE), line[:, None].expand(SAMPLES, 1, SIZE, SIZE)
    for place in (column, row):
        views = {"rgb": place.expand(-1, 3, -1, -1) / SIZE, "depth": place, "segmentation": place.to(torch.uint8)}
        boxes, flip = drawn(size)
        crops = crop_together(views, boxes, flip, size)
        torch.testing.assert_close(crops["rgb"][:, :1] * SIZE, crops["depth"], atol=1e-4, rtol=0)
        # At the border an average misses what lies outside, up to a sixth of the two pixels that it spans.
        reduction = (boxes[:, 2:].amax(1) / size).clamp_min(1).view(-1, 1, 1, 1)
        off = (crops["depth"] - crops["segmentation"]).abs()
        assert (off <= 0.5 + reduction / 3).all()
        assert (off <= 0.501)[..., 2:-2, 2:-2].all()


def test_colours_and_depth_are_torchvisions() -> None:
    boxes, flip = drawn(40)
    crops = crop_together(scenes(), boxes, flip, 40)
    for name, scale in (("rgb", 255), ("depth", 1)):
        for number, (top, left, height, width) in enumerate(boxes.tolist()):
            image = scenes()[name][number].float() / scale
            expected = resized_crop(image, top, left, height, width, [40, 40], antialias=True)
            expected = expected.flip(-1) if flip[number] else expected
            torch.testing.assert_close(crops[name][number], expected, atol=1e-4, rtol=0)


def test_labels_are_those_at_the_centres_of_the_new_pixels() -> None:
    boxes, flip = drawn(28)
    cut = crop_together(scenes(), boxes, flip, 28)["segmentation"]
    assert cut.dtype == torch.uint8
    for number, (top, left, height, width) in enumerate(boxes.tolist()):
        rows = [top + int(Fraction(2 * pixel + 1, 2) * Fraction(height, 28)) for pixel in range(28)]
        columns = [left + int(Fraction(2 * pixel + 1, 2) * Fraction(width, 28)) for pixel in range(28)]
        expected = scenes()["segmentation"][number, 0][rows][:, columns]
        assert torch.equal(cut[number, 0], expected.flip(-1) if flip[number] else expected)


def test_normals_keep_their_length_and_their_absence() -> None:
    views = {"normals": scenes()["normals"].clone()}
    views["normals"][0] = 0
    crops = crop_together(views, *drawn(24), 24)["normals"]
    assert torch.equal(crops[0], torch.zeros(3, 24, 24))
    torch.testing.assert_close(crops[1:].norm(dim=1), torch.ones(SAMPLES - 1, 24, 24))


def test_views_that_do_not_belong_together_are_refused() -> None:
    boxes, flip = whole(1, flip=False)
    with pytest.raises(ValueError, match=r"views \['flow'\] are not among"):
        crop_together({"flow": torch.zeros(1, 2, SIZE, SIZE)}, boxes, flip, 8)
    with pytest.raises(ValueError, match="views of one size"):
        crop_together({"rgb": torch.zeros(1, 3, SIZE, SIZE), "depth": torch.zeros(1, 1, 8, 8)}, boxes, flip, 8)
