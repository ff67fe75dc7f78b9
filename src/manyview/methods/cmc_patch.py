"""CMC of patches: the last layer of one view meets the positions of an early layer of the other, in the batch (B.2)."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, final

from torch import Tensor, nn

from manyview import distributed
from manyview.bounds import Positive
from manyview.encoders import Encoder
from manyview.methods.base import ViewBatch
from manyview.methods.patches import WithPatches, patch_heads
from manyview.methods.view_graph import CMC_PATCHES, GraphConfig, Seen, ViewGraph
from manyview.objectives import info_nce, patch_scores


@dataclass(frozen=True)
class CMCPatchConfig(GraphConfig):
    """CMC between whole samples and patches, within the batch (Tian et al., ECCV 2020, B.2). A single view is DIM."""

    temperature: Annotated[float, Positive] = 0.07
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
    by_adam = True
    config: CMCPatchConfig

    def __init__(self, config: CMCPatchConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        self.patches = patch_heads(encoder, config.layer, strided=config.strided)

    def learner(self) -> nn.Module:
        return WithPatches(self.encoder, self.patches)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        views, maps = self.embed(batch.crop(0))  # (N, D) and (N, D, h, w), by view
        pools = {name: distributed.gather(each) for name, each in maps.items()}
        index, offset = distributed.gather(batch.index), distributed.rank() * len(batch.index)

        def scores(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            there = self.presence.at(index, other)
            return patch_scores(views[anchor], pools[other], offset=offset, owner=self.owners(index), there=there)

        seen, contrast = Seen(), partial(info_nce, temperature=self.config.temperature)
        return {"loss": self.along_graph(views, scores, contrast, batch.index, seen), **seen.metrics()}
