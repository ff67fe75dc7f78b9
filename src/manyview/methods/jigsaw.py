"""PIRL's second branch: nine shuffled patches of a sample are a further view (Misra and van der Maaten, CVPR 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from manyview.bounds import Share
from manyview.encoders import Encoder
from manyview.methods.base import ViewBatch
from manyview.methods.view_graph import GraphConfig, ViewGraph
from manyview.precision import at_least_float32
from manyview.views.patches import CELLS, GRID, Jigsaw

Embeddings = dict[str, Tensor]  # (N, D) by view

PATCH = 0.75  # of a cell's side: PIRL cuts 64 pixels of 85


@dataclass(frozen=True)
class BranchedConfig(GraphConfig):
    jigsaw: Annotated[float, Share] = 0.0
    """Weight w of the loss of jigsaws (nine shuffled patches of a sample); whole samples have 1 − w. 0.5 in PIRL."""


class JigsawBranch(nn.Module):
    """For each view of the encoder: one layer from a patch's features to D numbers, one from those of nine to D."""

    def __init__(self, encoder: Encoder, *, seed: int) -> None:
        super().__init__()
        widths, dim = encoder.towers.widths, encoder.dim
        self.seed = seed
        self.each = nn.ModuleDict({name: nn.Linear(width, dim) for name, width in widths.items()})
        self.all = nn.ModuleDict({name: nn.Linear(CELLS * dim, dim) for name in widths})

    def patches(self, fields: Mapping[str, Tensor], batch: ViewBatch) -> dict[str, Tensor]:
        """Fields (N, c, h, w) -> (N, 9, c, side, side), all shuffled alike, anew in each step."""
        size = next(iter(fields.values())).shape[-1]
        jigsaw = Jigsaw(side=max(1, round(PATCH * (size // GRID))), seed=self.seed)
        plan = jigsaw.plan(batch.index, batch.step)
        return {name: jigsaw.apply(field, plan) for name, field in fields.items()}

    def forward(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Features of patches (N, 9, F) to embeddings (N, D), by view."""
        return {
            name: F.normalize(at_least_float32(self.all[name](self.each[name](each).flatten(1))), dim=1)
            for name, each in features.items()
        }


class WithJigsaw(nn.Module):
    """An encoder and the branch beside it, in one call: embeddings by view of the samples, and of the patches."""

    def __init__(self, encoder: Encoder, branch: JigsawBranch) -> None:
        super().__init__()
        self.encoder, self.branch = encoder, branch

    def forward(self, fields: Embeddings, patches: Embeddings) -> tuple[Embeddings, Embeddings]:
        found = self.encoder.towers({name: each.flatten(0, 1) for name, each in patches.items()})
        features = {name: each.unflatten(0, (-1, CELLS)) for name, each in found.items()}
        return self.encoder(fields), self.branch(features)


class Branched(ViewGraph):
    """Anchors are samples, and perhaps their jigsaws too."""

    def __init__(self, config: BranchedConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        self.jigsaw = JigsawBranch(encoder, seed=seed) if config.jigsaw else None

    def learner(self) -> nn.Module:
        return self.encoder if self.jigsaw is None else WithJigsaw(self.encoder, self.jigsaw)

    def branches(self, batch: ViewBatch) -> list[tuple[float, Embeddings]]:
        """Embeddings (N, D) by view of the samples in their first crop, and of the jigsaws of their last one, each with
        its share of the loss."""
        if self.jigsaw is None:
            return [(1.0, self.embed(batch.crop(0)))]
        whole, patched = self.embed(batch.crop(0), self.jigsaw.patches(batch.crop(-1), batch))
        return [(1 - self.config.jigsaw, whole), (self.config.jigsaw, patched)]
