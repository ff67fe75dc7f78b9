"""The networks of CMC between whole samples and their patches (B.2, D.1)."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders import Encoder, layer_features, with_layers
from manyview.errors import UserError
from manyview.precision import at_least_float32
from manyview.views.patches import strided

EARLY = ("layer2", "conv3")  # of ResNets, of AlexNets
ANY_SIZE = 64  # of images, where the encoder was not built for one


def patch_heads(encoder: Encoder, layer: str | None, *, strided: bool) -> "PatchHeads | StridedHeads":
    if strided and layer is not None:
        raise UserError(f"--layer {layer} and --strided are two kinds of patches: leave one out")
    return StridedHeads(encoder) if strided else PatchHeads(encoder, layer)


class StridedHeads(nn.Module):
    """For each view one layer from the features of a crop to the D numbers that it has among the patches."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        widths = encoder.towers.widths
        self.heads = nn.ModuleDict({name: nn.Linear(width, encoder.dim) for name, width in widths.items()})

    def forward(self, network: nn.Module, images: Tensor, view: str) -> tuple[Tensor, Tensor]:
        """What the network gives for a view (N, c, h, w), and the patches (N, D, 1, P)."""
        crops = strided(images)
        local = self.heads[view](network(crops.flatten(0, 1))).unflatten(0, crops.shape[:2])
        return network(images), local.mT.unsqueeze(2)


class PatchHeads(nn.Module):
    """For each view one layer from the channels of the early layer to the D numbers that a position has."""

    def __init__(self, encoder: Encoder, layer: str | None) -> None:
        super().__init__()
        towers, size = encoder.towers, encoder.image_size or ANY_SIZE
        first = next(iter(towers.networks.values()))
        known = [name for name, _ in first.named_children()]
        early = layer or next((name for name in EARLY if name in known), None)
        if early is None:
            raise UserError(f"--layer is needed to say which positions are patches: take some of {', '.join(known)}")
        self.layer = early
        self.heads = nn.ModuleDict()
        for name, network in towers.networks.items():
            network.eval()
            with torch.no_grad():
                black = torch.zeros(1, len(towers.named[name].channels), size, size)
                found = layer_features(network, black, [self.layer])[self.layer]
            network.train()
            if found.ndim != 4:
                raise UserError(f"--layer {self.layer} gives no map of positions: choose an earlier one")
            self.heads[name] = nn.Conv2d(found.shape[1], encoder.dim, 1)

    def forward(self, network: nn.Module, images: Tensor, view: str) -> tuple[Tensor, Tensor]:
        """What the network gives for a view (N, c, h, w), and the patches (N, D, h', w')."""
        output, found = with_layers(network, images, [self.layer])
        return output, self.heads[view](found[self.layer])


class WithPatches(nn.Module):
    """An encoder and the heads of its patches, in one call: embeddings (N, D) and unit maps (N, D, h, w), by view."""

    def __init__(self, encoder: Encoder, patches: PatchHeads | StridedHeads) -> None:
        super().__init__()
        self.encoder, self.patches = encoder, patches

    def forward(self, fields: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        towers = self.encoder.towers
        features, maps = {}, {}
        for name, images in towers.views(fields).items():
            features[name], local = self.patches(towers.networks[name], images, name)
            maps[name] = F.normalize(at_least_float32(local), dim=1)
        return self.encoder.embeddings(features), maps
