"""CMC between whole samples and their patches: the last layer of one view meets the positions of an early layer of the
other, within the batch (B.2)."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview import distributed
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import Encoder, EncoderConfig, Towers, layer_features, with_layers
from manyview.errors import UserError
from manyview.methods.base import Paper, ViewBatch
from manyview.methods.view_graph import GraphConfig, Seen, ViewGraph
from manyview.objectives import info_nce, patch_scores
from manyview.precision import at_least_float32
from manyview.views.patches import strided

__all__ = ["CMCPatch", "CMCPatchConfig"]

EARLY = ("layer2", "conv3")  # of ResNets, of AlexNets
ANY_SIZE = 64  # of images, where the encoder was not built for one


@dataclass(frozen=True)
class CMCPatchConfig(GraphConfig):
    """CMC between whole samples and patches, within the batch (Tian et al., ECCV 2020, B.2). A single view is DIM."""

    temperature: float = 0.07
    """τ of the softmax; the paper names none for patches."""
    layer: str | None = None
    """The layer whose positions are the patches: layer2 of a ResNet, conv3 of an AlexNet, unless named."""
    strided: bool = False
    """Patches are crops of 16×16 pixels that overlap by 8, each encoded by itself, not positions of a layer (D.1)."""


class CMCPatch(ViewGraph):
    name = "cmc-patch"
    title = "CMC of patches"
    Config = CMCPatchConfig
    paper = Paper(
        ViewConfig(augment="cmc", image_size=64),
        EncoderConfig(backbone="alexnet-half-small", head="linear", dim=64),
        OptimConfig(
            batch_size=256, optimizer="adam", lr=1e-3, weight_decay=0.0, epochs=200, schedule="step", decay=0.2
        ),
    )
    config: CMCPatchConfig

    @classmethod
    def view_count(cls, config: CMCPatchConfig) -> int:
        return 1

    def __init__(self, config: CMCPatchConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        if config.strided and config.layer is not None:
            raise UserError(f"--layer {config.layer} and --strided are two kinds of patches: leave one out")
        self.patches = StridedHeads(encoder) if config.strided else PatchHeads(encoder, config.layer)

    def learner(self) -> nn.Module:
        return WithPatches(self.encoder, self.patches)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        together, *maps = self.embed(batch.views[0])  # (N, V·D), and for each view (N, D, h, w)
        views, pools = self.apart(together), dict(zip(self.names, map(distributed.gather, maps), strict=True))
        there = self.presence.of(distributed.gather(batch.index))
        seen = Seen()

        def scores(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            pool, query = pools[other], views[anchor]
            positives, negatives = patch_scores(query, pool, offset=distributed.rank() * len(query))
            if there is not None:
                positions = pool.shape[-2] * pool.shape[-1]
                negatives = negatives.masked_fill(~there[other].repeat_interleave(positions), -torch.inf)
            return positives, negatives

        contrast = partial(info_nce, temperature=self.config.temperature)
        loss = self.along_graph(views, scores, contrast, batch.index, seen)
        return {"loss": loss, **seen.metrics()}


class StridedHeads(nn.Module):
    """For each view one layer from the features of a crop to the D numbers that it has among the patches."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        towers = encoder.backbone
        assert isinstance(towers, Towers)
        self.heads = nn.ModuleList(nn.Linear(width, encoder.config.dim) for width in towers.widths)

    def forward(self, network: nn.Module, images: Tensor, view: int) -> tuple[Tensor, Tensor]:
        """What the network gives for a view (N, c, h, w), and the patches (N, D, 1, P)."""
        crops = strided(images)
        local = self.heads[view](network(crops.flatten(0, 1))).unflatten(0, crops.shape[:2])
        return network(images), local.mT.unsqueeze(2)


class PatchHeads(nn.Module):
    """For each view one layer from the channels of the early layer to the D numbers that a position has."""

    def __init__(self, encoder: Encoder, layer: str | None) -> None:
        super().__init__()
        towers, size = encoder.backbone, encoder.image_size or ANY_SIZE
        assert isinstance(towers, Towers)
        first = next(iter(towers.networks.values()))
        known = [name for name, _ in first.named_children()]
        early = layer or next((name for name in EARLY if name in known), None)
        if early is None:
            raise UserError(f"--layer is needed to say which positions are patches: take some of {', '.join(known)}")
        self.layer = early
        self.heads = nn.ModuleList()
        for network, channels in zip(towers.networks.values(), towers.channels, strict=True):
            network.eval()
            with torch.no_grad():
                found = layer_features(network, torch.zeros(1, channels, size, size), [self.layer])[self.layer]
            network.train()
            if found.ndim != 4:
                raise UserError(f"--layer {self.layer} gives no map of positions: choose an earlier one")
            self.heads.append(nn.Conv2d(found.shape[1], encoder.config.dim, 1))

    def forward(self, network: nn.Module, images: Tensor, view: int) -> tuple[Tensor, Tensor]:
        """What the network gives for a view (N, c, h, w), and the patches (N, D, h', w')."""
        output, found = with_layers(network, images, [self.layer])
        return output, self.heads[view](found[self.layer])


class WithPatches(nn.Module):
    """An encoder and the heads of its patches, in one call: embeddings (N, V·D), and unit maps (N, D, h, w)."""

    def __init__(self, encoder: Encoder, patches: PatchHeads | StridedHeads) -> None:
        super().__init__()
        self.encoder, self.patches = encoder, patches

    def forward(self, samples: Tensor) -> tuple[Tensor, ...]:
        towers = self.encoder.backbone
        assert isinstance(towers, Towers)
        features, maps = [], []
        for number, (view, images) in enumerate(towers.views(samples).items()):
            output, local = self.patches(towers.networks[view], images, number)
            features.append(output)
            maps.append(F.normalize(at_least_float32(local), dim=1))
        embeddings = F.normalize(at_least_float32(self.encoder.head(torch.cat(features, 1))), dim=1)
        return embeddings, *maps
