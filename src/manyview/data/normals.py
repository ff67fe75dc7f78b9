"""Surface normals from depth: in each window of pixels a plane is fitted to the points that the camera saw."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.errors import UserError

_RADIUS = 2  # points to each side
_EDGE = 0.1  # of the depth: a neighbour that lies further off belongs to another surface
_SQUARINGS = 4
_FLAT = 1e-9  # of the squared spread: points on one line have no normal


class Intrinsics(NamedTuple):
    """A pinhole camera, in pixels of an image of `width` × `height`; x grows to the right, y downwards."""

    fx: float
    fy: float
    cx: float
    cy: float
    width: int = 640
    height: int = 480

    @classmethod
    def parse(cls, text: str, width: int, height: int) -> "Intrinsics":
        """`fx,fy,cx,cy` for images of this size."""
        try:
            fx, fy, cx, cy = (float(number) for number in text.split(","))
        except ValueError as error:
            raise UserError(f"--intrinsics {text} are not four numbers: use fx,fy,cx,cy in pixels") from error
        if not (0 < fx < float("inf") and 0 < fy < float("inf") and abs(cx) + abs(cy) < float("inf")):
            raise UserError(f"--intrinsics {text}: fx and fy must be greater than 0, and all four finite")
        return cls(fx, fy, cx, cy, width, height)

    def scaled(self, width: int, height: int) -> "Intrinsics":
        """The same camera, its images resized. Pixel centres lie at whole numbers, hence the halves."""
        x, y = width / self.width, height / self.height
        cx, cy = (self.cx + 0.5) * x - 0.5, (self.cy + 0.5) * y - 0.5
        return Intrinsics(self.fx * x, self.fy * y, cx, cy, width, height)


KINECT = Intrinsics(fx=518.8579, fy=519.4696, cx=325.5824, cy=253.7362)  # the colour camera of NYU Depth V2


def normals_from_depth(depth: Tensor, intrinsics: Intrinsics = KINECT) -> Tensor:
    """Depth (H, W) in metres, 0 where unknown -> unit normals (3, H, W) in float32, 0 where there is none.

    x points right, y up, z to the camera. The fit is by total least squares over 5 × 5 points, further apart in larger
    images, without those across an edge or of unknown depth.
    """
    height, width = depth.shape
    camera = intrinsics.scaled(width, height)
    z = depth.double()
    column, row = (torch.arange(count, dtype=torch.float64) for count in (width, height))
    points = torch.stack(((column - camera.cx) / camera.fx * z, (row - camera.cy)[:, None] / camera.fy * z, z))
    spread = _scatter(points, spacing=max(1, round(width / 320)))  # (H, W, 3, 3)
    # The normal n is the direction of least spread. The adjugate of the scatter matrix is λ₁λ₂ n nᵀ where the points
    # lie in a plane; noise adds terms that are smaller by λ₃/λ₂, and each squaring squares that ratio.
    stretch = _adjugate(spread)
    size = spread.diagonal(dim1=-2, dim2=-1).sum(-1)
    known = (z > 0) & (stretch.diagonal(dim1=-2, dim2=-1).sum(-1) > _FLAT * size.square())
    for _ in range(_SQUARINGS):
        stretch = stretch / stretch.abs().amax((-2, -1), keepdim=True).clamp_min(1e-300)
        stretch = stretch @ stretch
    longest = stretch.square().sum(-2).argmax(-1)[..., None, None].expand(height, width, 3, 1)
    normal = F.normalize(stretch.gather(-1, longest).squeeze(-1), dim=-1).movedim(-1, 0)
    normal = torch.where((normal * points).sum(0) > 0, -normal, normal)  # towards the camera
    return (normal * known * torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64).view(3, 1, 1)).float()


def _scatter(points: Tensor, *, spacing: int) -> Tensor:
    """Points (3, H, W) -> Σ (p - p̄)(p - p̄)ᵀ over each window, (H, W, 3, 3)."""
    reach = _RADIUS * spacing
    height, width = points.shape[1:]
    padded = F.pad(points, [reach] * 4)  # depth 0: unknown
    count = torch.zeros(height, width, dtype=points.dtype)
    first, second = points.new_zeros(3, height, width), points.new_zeros(3, 3, height, width)
    for top in range(0, 2 * reach + 1, spacing):
        for left in range(0, 2 * reach + 1, spacing):
            offset = padded[:, top : top + height, left : left + width] - points  # from the middle: no digits are lost
            near = (padded[2, top : top + height, left : left + width] > 0) & (offset[2].abs() <= _EDGE * points[2])
            offset = offset * near
            count += near
            first += offset
            second += offset.unsqueeze(0) * offset.unsqueeze(1)
    return (second - first.unsqueeze(0) * first.unsqueeze(1) / count.clamp_min(1)).permute(2, 3, 0, 1)


def _adjugate(matrix: Tensor) -> Tensor:
    """Of symmetric matrices (…, 3, 3): its columns are cross products of the others' rows."""
    a, b, c = matrix.unbind(-2)
    return torch.stack((torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)), -1)
