"""PIRL's second branch: nine shuffled patches of a sample stand for it (Misra and van der Maaten, CVPR 2020)."""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.bounds import Share
from manyview.encoders import Encoder, Towers
from manyview.methods.base import ViewBatch
from manyview.methods.view_graph import GraphConfig, ViewGraph
from manyview.precision import at_least_float32
from manyview.views.patches import CELLS, GRID, Jigsaw

__all__ = ["Branched", "BranchedConfig"]

PATCH = 0.75  # of a cell's side: PIRL cuts 64 pixels of 85


@dataclass(frozen=True)
class BranchedConfig(GraphConfig):
    jigsaw: Annotated[float, Share] = 0.0
    """Share of the loss in which nine shuffled patches stand for a sample, as in PIRL: there 0.5."""


class JigsawBranch(nn.Module):
    """For each view of the encoder: one layer from a patch's features to D numbers, one from those of nine to D."""

    def __init__(self, encoder: Encoder, *, seed: int) -> None:
        super().__init__()
        towers, dim = encoder.backbone, encoder.config.dim
        if not isinstance(towers, Towers):
            raise TypeError("a jigsaw belongs to an encoder with a network for each view")
        self.seed, self.widths = seed, towers.widths
        self.each = nn.ModuleList(nn.Linear(width, dim) for width in self.widths)
        self.all = nn.ModuleList(nn.Linear(CELLS * dim, dim) for _ in self.widths)

    def patches(self, images: Tensor, batch: ViewBatch) -> Tensor:
        """(N, C, h, w) -> (N, 9, C, side, side), shuffled anew in each step."""
        jigsaw = Jigsaw(side=max(1, round(PATCH * (images.shape[-1] // GRID))), seed=self.seed)
        return jigsaw.apply(images, jigsaw.plan(batch.index, batch.step))

    def forward(self, features: Tensor) -> Tensor:
        """Features of patches (N, 9, F) to embeddings (N, V·D), as an encoder gives them."""
        parts = [
            whole(each(part).flatten(1))
            for each, whole, part in zip(self.each, self.all, features.split(self.widths, -1), strict=True)
        ]
        views = torch.cat([F.normalize(at_least_float32(part), dim=1) for part in parts], 1)
        return F.normalize(views, dim=1)


class WithJigsaw(nn.Module):
    """An encoder and the branch beside it, in one call: (N, V·D) of the images, and of the patches."""

    def __init__(self, encoder: Encoder, branch: JigsawBranch) -> None:
        super().__init__()
        self.encoder, self.branch = encoder, branch

    def forward(self, images: Tensor, patches: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder.backbone(patches.flatten(0, 1)).unflatten(0, patches.shape[:2])
        return self.encoder(images), self.branch(features)


class Branched(ViewGraph):
    """Anchors are samples, and perhaps their jigsaws too."""

    def __init__(self, config: BranchedConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        self.jigsaw = JigsawBranch(encoder, seed=seed) if config.jigsaw else None

    def learner(self) -> nn.Module:
        return self.encoder if self.jigsaw is None else WithJigsaw(self.encoder, self.jigsaw)

    def branches(self, batch: ViewBatch) -> list[tuple[float, Tensor]]:
        """Embeddings (N, V·D) of the samples in their first crop, and of the jigsaws of their last one, each with its
        share of the loss."""
        if self.jigsaw is None:
            return [(1.0, self.embed(batch.views[0]))]
        whole, patched = self.embed(batch.views[0], self.jigsaw.patches(batch.views[-1], batch))
        return [(1 - self.config.jigsaw, whole), (self.config.jigsaw, patched)]
