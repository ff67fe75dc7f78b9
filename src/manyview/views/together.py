"""The further images of a sample, cut and mirrored as its colours are, so that all of them show the same place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from manyview.stack import PLANES
from manyview.views.space import resize

__all__ = ["cut_planes"]


def cut_planes(stack: Tensor, planes: Sequence[str], boxes: Tensor | None, flip: Tensor, size: int) -> Tensor:
    """Further images (B, c, H, W) uint8, cut at boxes (B, 4), mirrored where `flip` (B,) -> (B, c, size, size) in
    [0, 1]. Without boxes they are cut already."""
    x = stack.transpose(0, 1).float() / 255
    x = torch.where(flip.view(-1, 1, 1), x.flip(-1), x) if boxes is None else resize(x, boxes, flip, size)
    first = 0
    for name in planes:
        if name == "normals":  # what pointed to the right points to the left in a mirror
            x[first] = torch.where(flip.view(-1, 1, 1), 1 - x[first], x[first])
        first += PLANES[name]
    return x.transpose(0, 1)
