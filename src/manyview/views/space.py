"""Space: crop, flip and blur are separable and linear, so each is a product A X B with small matrices."""

import math

import torch
from torch import Tensor

# Up to _DENSE pixels a blur is one matrix; beyond it skips the zeros far from the diagonal, _BAND rows at a time.
_DENSE, _BAND = 112, 48


def _sandwich(left: Tensor, x: Tensor, right: Tensor) -> Tensor:
    """A X B for each view and channel: (B, h, H), (c, B, H, W), (B, W, w) -> (c, B, h, w)."""
    out = x.new_empty(*x.shape[:2], left.shape[1], right.shape[2])
    for plane, result in zip(x, out, strict=True):
        torch.bmm(torch.bmm(left, plane), right, out=result)
    return out


def _resize_matrix(
    start: Tensor, length: Tensor, source: int, size: int, *, dim: int, flip: Tensor | None = None
) -> Tensor:
    """Resize the stretches [start, start + length) of lines of `source` pixels to `size`, bilinear and antialiased.

    An output pixel weighs the input by a triangle as wide to each side as the reduction, at least one pixel. The
    matrices have the input along `dim`: (B, source, size) for 1, (B, size, source) for 2.
    """
    start, length = start.view(-1, 1, 1).float(), length.view(-1, 1, 1).float()
    scale = length / size
    reach = scale.clamp_min(1)
    # Both are counted from the middle of the stretch, so that a flip is a change of sign.
    tap = torch.arange(source, device=start.device).unsqueeze(2 - dim) - (start + (length - 1) / 2)
    pixel = torch.arange(size, device=start.device).unsqueeze(dim - 1) - (size - 1) / 2
    if flip is not None:
        scale = scale * torch.where(flip, -1, 1).view(-1, 1, 1)
    weight = torch.sub(tap / reach, pixel * (scale / reach)).abs_()
    inside = (tap.abs() < length / 2).float()
    torch.sub(inside, weight, out=weight).clamp_min_(0)
    return weight.div_(weight.sum(dim, keepdim=True))


def resize(x: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    """Cut at boxes (B, 4): (c, B, H, W) -> (c, B, size, size)."""
    top, left, height, width = boxes.unbind(-1)
    rows = _resize_matrix(top, height, x.shape[-2], size, dim=2)
    columns = _resize_matrix(left, width, x.shape[-1], size, dim=1, flip=flip)
    return _sandwich(rows, x, columns)


def nearest(boxes: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Rows and columns (…, size) of the pixels that boxes (…, 4) are resized to: see `pick`."""
    top, left, height, width = boxes.unsqueeze(-1).unbind(-2)
    middle = 2 * torch.arange(size, device=boxes.device) + 1
    return top + middle * height // (2 * size), left + middle * width // (2 * size)


def pick(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels as they are: (N, c, H, W) at rows (N, …, h) and columns (N, …, w) -> (N, …, c, h, w)."""
    sample = torch.arange(len(x), device=x.device).view(-1, *[1] * rows.dim())
    return x[sample, :, rows.unsqueeze(-1), columns.unsqueeze(-2)].movedim(-1, -3).contiguous()


class Blur:
    """The blur of lines of `size` pixels with reflected ends, as bands of a matrix.

    A band is some rows of the matrix, without the columns beyond their reach, where it is zero.
    """

    def __init__(self, size: int, radius: int) -> None:
        line = torch.arange(size)
        basis = torch.zeros(radius + 1, size, size)
        for offset in range(-radius, radius + 1):
            reflected = (line + offset).abs()
            basis[abs(offset), line, torch.minimum(reflected, 2 * (size - 1) - reflected)] += 1
        step = size if size <= _DENSE else _BAND
        self.rows = [slice(start, min(start + step, size)) for start in range(0, size, step)]
        self.reach = [slice(max(0, rows.start - radius), min(rows.stop + radius, size)) for rows in self.rows]
        # (radius + 1, all bands in one line): weighted by a kernel's taps it sums to the bands
        self.basis = torch.cat([basis[:, r, c].flatten(1) for r, c in zip(self.rows, self.reach, strict=True)], 1)

    def bands(self, sigma: Tensor) -> list[tuple[slice, slice, Tensor]]:
        """Rows, reach and matrices (B, rows, reach) for kernels (B,)."""
        basis = self.basis.to(sigma.device)
        shapes = [(r.stop - r.start, c.stop - c.start) for r, c in zip(self.rows, self.reach, strict=True)]
        pieces = (_blur_taps(sigma, len(basis) - 1) @ basis).split([math.prod(shape) for shape in shapes], 1)
        matrices = [piece.unflatten(1, shape) for piece, shape in zip(pieces, shapes, strict=True)]
        return list(zip(self.rows, self.reach, matrices, strict=True))

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        """(c, B, h, w) with one σ for each view (B,)."""
        bands = self.bands(sigma)
        if len(bands) == 1:
            matrix = bands[0][2]
            return _sandwich(matrix, x, matrix.mT)
        # All planes in one call: the planes of one view share its matrix.
        bands = [(rows, reach, matrix.expand(len(x), *matrix.shape).flatten(0, 1)) for rows, reach, matrix in bands]
        planes = x.flatten(0, 1)
        down = torch.empty_like(planes)
        for rows, reach, matrix in bands:
            torch.bmm(matrix, planes[:, reach], out=down[:, rows])
        for rows, reach, matrix in bands:
            torch.bmm(down[..., reach], matrix.mT, out=planes[..., rows])
        return planes.view_as(x)


def _blur_taps(sigma: Tensor, radius: int) -> Tensor:
    """Gaussian kernels (B,) -> (B, radius + 1): the weights at distance 0, 1, … that cover 3σ; both sides sum to 1."""
    distance = torch.arange(radius + 1.0, device=sigma.device)
    sigma = sigma.unsqueeze(-1)
    taps = torch.exp((distance / sigma).square() * -0.5) * (distance < 3 * sigma + 1)
    return taps / (2 * taps.sum(-1, keepdim=True) - 1)
