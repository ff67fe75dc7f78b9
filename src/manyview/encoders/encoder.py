"""A backbone and a head: images in, unit embeddings out."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview import bounds
from manyview.bounds import AtLeastOne
from manyview.encoders.backbones import Norm, Stem, build_backbone, feature_width
from manyview.encoders.towers import TowerHeads, Towers
from manyview.errors import UserError
from manyview.precision import at_least_float32
from manyview.stack import channels_of
from manyview.views.named import named_views, planes_of

__all__ = ["Encoder", "EncoderConfig", "build_encoder"]


@dataclass(frozen=True)
class EncoderConfig:
    """The network."""

    backbone: str = "resnet50"
    """Any model of timm, or `tiny` (1.2 M parameters, for 16-96 px), `alexnet-small` (for 32 and 64 px), CMC's
    `alexnet-half-small` (64 px), `alexnet-half` (224 px) and `nyu` (128 px), `resnet50x0.5` or `resnet50x2`."""
    stem: Stem = "standard"
    """First layers of a ResNet. `small`: one 3×3 convolution without stride or pooling, for images of 32-64 px."""
    norm: Norm = "batch"
    """`batch`: batch normalisation, in each process by itself. `sync`: batch normalisation over all processes. `group`:
    group normalisation, which does not depend on the other samples of the batch."""
    bn_splits: Annotated[int, AtLeastOne] = 1
    """Batch normalisation splits each batch into N parts with their own statistics, as N devices would. This gives
    Shuffle-BN on one device."""
    head: Literal["linear", "mlp"] = "mlp"
    """Projection head: one linear layer (MoCo v1), or two with a ReLU between them (MoCo v2, SimCLR, JCL)."""
    dim: Annotated[int, AtLeastOne] = 128
    """Dimension of the embedding."""
    split: str | None = None
    """Views of a sample that go to networks of their own, such as lab (L and ab) or lab,depth; `cmc` sets it by
    --views."""

    @property
    def planes(self) -> tuple[str, ...]:
        """The further images of a sample that are needed: see `manyview.stack`."""
        return () if self.split is None else planes_of(named_views(self.split))


class Encoder(nn.Module):
    """`backbone` gives features (N, F); `head` and a normalisation make embeddings (N, D) of them for the objective."""

    def __init__(
        self, backbone: nn.Module, config: EncoderConfig, *, in_channels: int = 3, image_size: int | None = None
    ) -> None:
        """`image_size` is that of the images that it was built for, where it was."""
        super().__init__()
        self.config, self.image_size = config, image_size
        self.in_channels = in_channels  # C
        self.num_features = feature_width(backbone)  # F
        self.backbone = backbone
        if isinstance(backbone, Towers):
            self.head: nn.Module = TowerHeads(backbone.widths, lambda width: _head(config.head, width, config.dim))
            self.dim = config.dim * len(backbone.widths)
        else:
            self.head = _head(config.head, self.num_features, config.dim)
            self.dim = config.dim  # D

    def features(self, x: Tensor) -> Tensor:
        """Normalised images (N, C, H, W) to features (N, F), in at least float32."""
        return at_least_float32(self.backbone(x))

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images (N, C, H, W) to unit embeddings (N, D), in at least float32."""
        return F.normalize(at_least_float32(self.head(self.backbone(x))), dim=1)


def build_encoder(config: EncoderConfig, *, image_size: int | None = None, in_channels: int = 3) -> Encoder:
    """An encoder with fresh weights. With `image_size` it is also tried whether the backbone takes such images. Where
    each view has a network, the views say how many channels a sample has."""
    bounds.check(config)
    backbone = build_backbone(
        config.backbone,
        stem=config.stem,
        norm=config.norm,
        bn_splits=config.bn_splits,
        image_size=image_size,
        in_channels=in_channels,
        split=config.split,
    )
    if isinstance(backbone, Towers):
        in_channels = channels_of(backbone.planes)
    if image_size is not None:
        _try_size(config.backbone, backbone, image_size, in_channels)
    return Encoder(backbone, config, in_channels=in_channels, image_size=image_size)


def _head(kind: Literal["linear", "mlp"], features: int, dim: int) -> nn.Module:
    if kind == "linear":
        return nn.Linear(features, dim)
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(inplace=True), nn.Linear(features, dim))


def _try_size(name: str, backbone: nn.Module, image_size: int, in_channels: int) -> None:
    """One black image now, rather than a stranger's traceback at the first step."""
    backbone.eval()
    try:
        with torch.no_grad():
            backbone(torch.zeros(1, in_channels, image_size, image_size))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise UserError(f"--backbone {name} does not take --image-size {image_size}: take another size") from error
    finally:
        backbone.train()
