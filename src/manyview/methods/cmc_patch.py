"""CMC of patches: the last layer of one view meets the positions of an early layer of the other, in the batch (B.2)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import final

from torch import Tensor, nn

from manyview import distributed
from manyview.encoders import Encoder
from manyview.methods.base import CMCSetup, Setup, ViewBatch
from manyview.methods.patches import WithPatches, patch_heads
from manyview.methods.view_graph import ADAM, CMC_PATCHES, GraphConfig, Seen, ViewGraph
from manyview.objectives import info_nce, patch_scores

__all__ = ["CMCPatch", "CMCPatchConfig"]


@dataclass(frozen=True)
class CMCPatchConfig(GraphConfig):
    """CMC between whole samples and patches, within the batch (Tian et al., ECCV 2020, B.2). A single view is DIM."""

    temperature: float = 0.07
    """τ of the softmax; the paper names none for patches."""
    layer: str | None = None
    """The layer whose positions are the patches: layer2 of a ResNet, conv3 of an AlexNet, unless named."""
    strided: bool = False
    """Patches are crops of 16×16 pixels that overlap by 8, each encoded by itself, not positions of a layer (D.1)."""


@final
class CMCPatch(ViewGraph):
    name = "cmc-patch"
    title = "CMC of patches"
    Config = CMCPatchConfig
    paper = CMC_PATCHES
    config: CMCPatchConfig

    @classmethod
    def in_cmc_setup(cls, setup: CMCSetup) -> Setup:
        adam = replace(ADAM, epochs=200, milestones=(0.6, 0.8), lr=1e-2 if setup == "paper-alexnet" else 1e-3)
        return super().in_cmc_setup(setup) if setup == "paper-nyu" else Setup({}, adam)

    def __init__(self, config: CMCPatchConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        self.patches = patch_heads(encoder, config.layer, strided=config.strided)

    def learner(self) -> nn.Module:
        return WithPatches(self.encoder, self.patches)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        together, *maps = self.embed(batch.views[0])  # (N, V·D), and for each view (N, D, h, w)
        views, pools = self.apart(together), dict(zip(self.names, map(distributed.gather, maps), strict=True))
        index, offset = distributed.gather(batch.index), distributed.rank() * len(batch.index)

        def scores(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            return patch_scores(views[anchor], pools[other], offset=offset, there=self.presence.at(index, other))

        seen, contrast = Seen(), partial(info_nce, temperature=self.config.temperature)
        return {"loss": self.along_graph(views, scores, contrast, batch.index, seen), **seen.metrics()}
