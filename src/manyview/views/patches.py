"""Views that are parts of an image: the shuffled patches of a jigsaw, and overlapping patches in order."""

from typing import NamedTuple

import torch
from torch import Tensor

from manyview import counter
from manyview.errors import UserError
from manyview.views.space import pick

_TAG = 0x6A6967736177  # "jigsaw": keeps these draws apart from everybody else's
GRID = 3
CELLS = GRID**2


class JigsawPlan(NamedTuple):
    """The random parameters of the jigsaws of N samples, independent of the images' sizes."""

    order: Tensor  # (N, 9) the cell whose patch stands at each place; cells are counted row by row
    position: Tensor  # (N, 9, 2) of each place's patch in the room of its cell: 0 is top or left, 1 bottom or right


class Jigsaw:
    """Nine shuffled patches of each image, one from each cell of a 3 × 3 grid: the second branch of PIRL.

    The CMC paper (D.4) takes it over without details. PIRL cuts patches of 64 pixels at random places in the cells of
    85 pixels of an image of 255; patches as large as the cells are the cells themselves.
    """

    def __init__(self, *, side: int, seed: int) -> None:
        self.side, self.seed = side, seed

    def plan(self, index: Tensor, epoch: int) -> JigsawPlan:
        """The jigsaws of the samples `index` (N,)."""
        sample, cell = index.view(-1, 1), torch.arange(CELLS, device=index.device)
        order = counter.bits(self.seed, _TAG, epoch, sample, cell).argsort(dim=-1, stable=True)
        draw = CELLS + torch.arange(2 * CELLS, device=index.device)
        position = counter.uniform(self.seed, _TAG, epoch, sample, draw).view(-1, CELLS, 2)
        return JigsawPlan(order, position)

    def apply(self, images: Tensor, plan: JigsawPlan) -> Tensor:
        """(N, c, H, W) -> (N, 9, c, side, side). Views of one sample that share a plan are cut alike."""
        cell = torch.tensor(images.shape[-2:], device=images.device) // GRID
        if self.side > min(images.shape[-2:]) // GRID:
            raise ValueError(f"patches of {self.side} pixels do not fit into a ninth of {tuple(images.shape[-2:])}")
        order, position = (field.to(images.device) for field in plan)
        place = torch.stack((order // GRID, order % GRID), -1)
        corner = place * cell + (position.double() * (cell - self.side + 1)).long()
        line = torch.arange(self.side, device=images.device)
        return pick(images, corner[..., :1] + line, corner[..., 1:] + line)


def strided(images: Tensor, *, side: int = 16, overlap: int = 8) -> Tensor:
    """Overlapping patches, row by row: (N, c, H, W) -> (N, patches, c, side, side), 49 of 64 × 64 (CMC, D.1).

    What is left at the right and at the bottom when the patches do not end there is not used.
    """
    if (room := min(images.shape[-2:])) < side:
        raise UserError(f"crops of {side} px do not fit into views of {room} px: use --image-size {2 * side} or more")
    step = side - overlap
    windows = images.unfold(2, side, step).unfold(3, side, step)  # (N, c, rows, columns, side, side)
    return windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)
