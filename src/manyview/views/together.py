"""Crops and flips of several spatial views of a sample, so that all of them show the same place."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.views.space import pick, resize

__all__ = ["RESAMPLING", "crop_together"]

Resampling = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def _smooth(view: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    """Bilinear and antialiased."""
    return resize(view.transpose(0, 1).float(), boxes, flip, size).transpose(0, 1).contiguous()


def _colours(view: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    smooth = _smooth(view, boxes, flip, size)
    return smooth / 255 if view.dtype == torch.uint8 else smooth


def _directions(view: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    """Unit vectors, x to the right: a mirror turns it to the left. Where there is none, (0, 0, 0), it stays so."""
    x, y, z = F.normalize(_smooth(view, boxes, flip, size), dim=1, eps=1e-6).unbind(1)
    return torch.stack((torch.where(flip.view(-1, 1, 1), -x, x), y, z), 1)


def _labels(view: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    """The label at the centre of each new pixel. In whole numbers, so that no rounding moves an edge."""
    top, left, height, width = boxes.unsqueeze(-1).unbind(1)
    pixel = torch.arange(size, device=view.device)
    column = torch.where(flip.unsqueeze(-1), size - 1 - pixel, pixel)
    return pick(view, top + (2 * pixel + 1) * height // (2 * size), left + (2 * column + 1) * width // (2 * size))


RESAMPLING: dict[str, Resampling] = {
    "rgb": _colours,
    "depth": _smooth,
    "normals": _directions,
    "segmentation": _labels,
}


def crop_together(views: Mapping[str, Tensor], boxes: Tensor, flip: Tensor, size: int) -> dict[str, Tensor]:
    """Views (N, c, H, W) of the same samples, cut at boxes (N, 4), mirrored where `flip` (N,) -> (N, c, size, size).

    rgb (uint8, or floats in [0, 1]) and depth come back as float32, rgb in [0, 1]; normals as unit vectors;
    segmentation with its own labels and dtype. `Augment.boxes` and `Plan.flip` say where to cut:

        plan = augment.plan(index, epoch)
        crops = crop_together(views, augment.boxes(plan, height, width)[:, v], plan.flip[:, v], augment.size)
    """
    unknown = set(views) - set(RESAMPLING)
    if unknown:
        raise ValueError(f"views {sorted(unknown)} are not among {tuple(RESAMPLING)}")
    if len({(len(view), *view.shape[-2:]) for view in views.values()}) > 1:
        raise ValueError(f"views of one size are cut together, not {[tuple(view.shape) for view in views.values()]}")
    return {
        name: RESAMPLING[name](view, boxes.to(view.device), flip.to(view.device), size) for name, view in views.items()
    }
