"""Normals from depth: planes and spheres whose normals are known, edges, holes, and a loop over singular values."""

import numpy as np
import pytest
import torch
from torch import Tensor

from manyview.data.normals import KINECT, Intrinsics, normals_from_depth
from manyview.errors import UserError

CAMERA = Intrinsics(fx=60.0, fy=62.0, cx=30.0, cy=21.0, width=64, height=48)


def rays(camera: Intrinsics = CAMERA) -> Tensor:
    """(3, H, W): where each pixel looks, with z = 1; y downwards."""
    row, column = torch.meshgrid(torch.arange(camera.height), torch.arange(camera.width), indexing="ij")
    return torch.stack(
        ((column - camera.cx) / camera.fx, (row - camera.cy) / camera.fy, torch.ones(row.shape))
    ).double()


def outward(normal: Tensor) -> Tensor:
    """From the camera's axes (y down, z away) to ours (y up, z to the camera)."""
    return normal * torch.tensor([1.0, -1.0, -1.0]).view(3, *[1] * (normal.ndim - 1))


def degrees(found: Tensor, expected: Tensor) -> Tensor:
    return torch.rad2deg(torch.acos((found.double() * expected.double()).sum(0).clamp(-1, 1)))


@pytest.mark.parametrize("normal", [(0.0, 0.0, -1.0), (0.3, -0.2, -0.9), (-0.5, 0.4, -0.6), (0.0, -0.8, -0.6)])
def test_a_plane_has_its_own_normal_in_every_pixel(normal: tuple[float, float, float]) -> None:
    n = torch.nn.functional.normalize(torch.tensor(normal, dtype=torch.float64), dim=0)
    depth = -2.0 / (n.view(3, 1, 1) * rays()).sum(0)  # n · p = -2
    assert (depth > 0).all()
    found = normals_from_depth(depth, CAMERA)
    assert degrees(found, outward(n).view(3, 1, 1)).max() < 0.1


def test_a_sphere_bulges_towards_the_camera() -> None:
    ray, centre, radius = rays(), torch.tensor([0.1, -0.05, 3.0], dtype=torch.float64), 1.0
    a, b = (ray * ray).sum(0), (ray * centre.view(3, 1, 1)).sum(0)
    root = b.square() - a * (centre @ centre - radius**2)
    depth = torch.where(root > 0, (b - root.clamp_min(0).sqrt()) / a, torch.zeros(()))
    expected = outward((depth * ray - centre.view(3, 1, 1)) / radius)
    inside = (expected * expected).sum(0).sub(1).abs().lt(1e-6) & (expected[2] > 0.6)  # not its rim
    assert int(inside.sum()) > 300
    off = degrees(normals_from_depth(depth, CAMERA), expected)[inside]
    assert off.median() < 1
    assert off.max() < 6
    found = normals_from_depth(depth, CAMERA)
    left, right = found[0][:, :20][inside[:, :20]], found[0][:, 44:][inside[:, 44:]]
    assert (left < 0).all()
    assert (right > 0).all()
    top = found[1][:10][inside[:10]]
    assert (top > 0).all()


def test_noise_is_fitted_as_singular_values_would() -> None:
    generator = torch.Generator().manual_seed(0)
    depth = (2 + 0.3 * rays()[0] + 0.004 * torch.randn(48, 64, generator=generator, dtype=torch.float64)).float()
    found = normals_from_depth(depth, CAMERA)
    points = (rays() * depth.double()).numpy()
    for row, column in [(10, 10), (24, 40), (40, 55)]:
        window = points[:, row - 2 : row + 3, column - 2 : column + 3].reshape(3, -1)
        centred = window - window.mean(1, keepdims=True)
        normal = torch.from_numpy(np.linalg.svd(centred)[0][:, 2])
        normal = outward(-normal if normal @ torch.from_numpy(points[:, row, column]) > 0 else normal)
        assert degrees(found[:, row, column], normal) < 0.05


def test_a_step_in_depth_does_not_bend_the_planes_beside_it() -> None:
    depth = torch.full((48, 64), 2.0)
    depth[:, 32:] = 3.0
    assert degrees(normals_from_depth(depth, CAMERA), torch.tensor([0.0, 0.0, 1.0]).view(3, 1, 1)).max() < 0.1


def test_unknown_depth_has_no_normal_and_spoils_none() -> None:
    depth = torch.full((48, 64), 2.0)
    depth[20:30, 20:30] = 0.0
    depth[5, 5] = 7.0  # a single point on no surface
    found = normals_from_depth(depth, CAMERA)
    assert (found[:, 20:30, 20:30] == 0).all()
    assert (found[:, 5, 5] == 0).all()
    known = depth == 2
    assert degrees(found, torch.tensor([0.0, 0.0, 1.0]).view(3, 1, 1))[known].max() < 0.1
    assert (normals_from_depth(torch.zeros(48, 64), CAMERA) == 0).all()


def test_a_mirrored_image_has_mirrored_normals() -> None:
    depth = 2 + 0.3 * rays()[0] + 0.1 * rays()[1].square()
    mirrored = CAMERA._replace(cx=CAMERA.width - 1 - CAMERA.cx)
    expected = normals_from_depth(depth, CAMERA).flip(-1) * torch.tensor([-1.0, 1.0, 1.0]).view(3, 1, 1)
    torch.testing.assert_close(normals_from_depth(depth.flip(-1), mirrored), expected)


def test_intrinsics_follow_the_size_of_the_image() -> None:
    half = KINECT.scaled(320, 240)
    assert half.fx == pytest.approx(KINECT.fx / 2)
    assert half.cx == pytest.approx((KINECT.cx - 0.5) / 2)
    assert half.scaled(640, 480) == pytest.approx(KINECT)
    assert Intrinsics.parse("60,62,30,21", 64, 48) == CAMERA


@pytest.mark.parametrize("text", ["60,62,30", "a,b,c,d", "0,62,30,21", "nan,62,30,21", "60,62,30,inf"])
def test_wrong_intrinsics_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--intrinsics"):
        Intrinsics.parse(text, 64, 48)
