"""Encoders: a backbone and a head, which turn images into unit embeddings; and the momentum (key) encoder.

An encoder with a network per view takes fields of samples by name and gives embeddings by view."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyview import bounds, counter, distributed
from manyview.bounds import AtLeastOne
from manyview.encoders.backbones import Norm, Stem, build_backbone, feature_width
from manyview.encoders.norms import FixedBatchNorm, SyncBatchNorm
from manyview.encoders.towers import Towers
from manyview.errors import UserError
from manyview.fields import FIELDS, IMAGE
from manyview.precision import at_least_float32
from manyview.views.named import fields_of, named_views

_SHUFFLE = 0x53487566  # keeps the orders of keys apart from all other draws of the same seed


@dataclass(frozen=True)
class EncoderConfig:
    """The network."""

    backbone: str = "resnet50"
    """Any model of timm, or `tiny` (1.2 M parameters, for 16-96 px), `alexnet-small` (for 32 and 64 px), CMC's
    `alexnet-half-small` (64 px), `alexnet-half` (224 px) and `nyu` (128 px), `resnet50x0.5` or `resnet50x2`."""
    stem: Stem = "standard"
    """First layers of a ResNet. `small`: one 3×3 convolution without stride or pooling, for images of 32-64 px."""
    norm: Norm = "batch"
    """`batch`: batch normalisation, in each process by itself. `sync`: batch normalisation over all processes. `fixed`:
    batch normalisation by the statistics of --init, for small batches. `group`: group normalisation, which does not
    depend on the other samples of the batch either."""
    bn_splits: Annotated[int, AtLeastOne] = 1
    """Batch normalisation splits each batch into N parts with their own statistics, as N devices would. This gives
    Shuffle-BN on one device."""
    head: Literal["linear", "mlp"] = "mlp"
    """Projection head: one linear layer (MoCo v1), or two with a ReLU between them (MoCo v2, SimCLR, JCL)."""
    dim: Annotated[int, AtLeastOne] = 128
    """Dimension of the embedding."""
    init: str | None = None
    """Start from trained weights instead of random ones: `timm` (its default weights of --backbone), timm:TAG,
    timm:MODEL, a run directory, or a file of manyview, timm, torchvision or MoCo (.safetensors, or .pth with tensors
    alone)."""
    split: str | None = None
    """One network per view, for these views of a sample, such as lab (L and ab) or lab,depth. `cmc` sets it by
    --views."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What is needed of a sample."""
        return (IMAGE,) if self.split is None else fields_of(named_views(self.split))


class Encoder(nn.Module):
    """`backbone` gives features (N, F). `head` and a normalisation turn them into embeddings (N, D) for the objective.

    With `Towers` as backbone, features, heads and embeddings are by the name of the view.
    """

    def __init__(
        self, backbone: nn.Module, config: EncoderConfig, *, in_channels: int = 3, image_size: int | None = None
    ) -> None:
        """`image_size`: of the images that the backbone was built for, if it was built for one size."""
        super().__init__()
        self.config, self.image_size = config, image_size
        self.in_channels = in_channels  # C
        self.num_features = feature_width(backbone)  # F
        self.backbone = backbone
        self.dim = config.dim  # D
        if isinstance(backbone, Towers):
            heads = {name: _head(config.head, width, config.dim) for name, width in backbone.widths.items()}
            self.head: nn.Module = nn.ModuleDict(heads)
        else:
            self.head = _head(config.head, self.num_features, config.dim)

    @property
    def towers(self) -> Towers:
        """The backbone of a method that needs one network for each view."""
        if not isinstance(self.backbone, Towers):
            raise TypeError("this encoder sees whole images, and not each view by a network of its own")
        return self.backbone

    def features(self, x: Tensor) -> Tensor:
        """Normalised images (N, C, H, W) to features (N, F), in at least float32."""
        return at_least_float32(self.backbone(x))

    def forward(self, x: Any) -> Any:
        """Normalised images (N, C, H, W) to unit embeddings (N, D), in at least float32; of towers fields (N, c, H, W)
        by name to embeddings by view."""
        return self.embeddings(self.backbone(x))

    def embeddings(self, features: Any) -> Any:
        """What the head makes of the backbone's output."""
        if isinstance(self.head, nn.ModuleDict):
            return {name: _unit(self.head[name](each)) for name, each in features.items()}
        return _unit(self.head(features))


class Momentum(nn.Module):
    """The key encoder: a copy of `encoder` and its head, with parameters θ_k ← m θ_k + (1 − m) θ_q (MoCo, Eq. 2).

    `passes` is the number of forward passes for the keys of a step; more need less memory. Both numbers are plain
    attributes: as buffers they would override the flags of a resumed run.
    """

    def __init__(self, encoder: Encoder, momentum: float = 0.999, *, passes: int = 1) -> None:
        super().__init__()
        self.momentum, self.passes = momentum, passes
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)
        self._own_statistics = any(
            isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm | FixedBatchNorm)
            for layer in encoder.modules()
        )

    @torch.no_grad()
    def update(self, encoder: Encoder) -> None:
        """Only parameters follow: the statistics of batch normalisation are those of the keys themselves."""
        torch._foreach_lerp_(tuple(self.encoder.parameters()), tuple(encoder.parameters()), 1 - self.momentum)

    @torch.no_grad()
    def encode(self, views: Any, *, seed: int, step: int, part: int = 0) -> Any:
        """The keys (N, M, D) of views (M, N, 3, h, w); of towers by view, of fields by name.

        Shuffle-BN: where parts of a batch have their own batch statistics, the N·M keys of all ranks are shuffled by
        (seed, step, part of the step). Otherwise a query and its key would share statistics and be recognised by them.
        JCL's Algorithm 1 shuffles the M′ keys jointly.
        """
        m, n = next(iter(views.values()) if isinstance(views, Mapping) else iter([views])).shape[:2]
        images = _each(views, lambda view: view.flatten(0, 1))
        if not self._shuffles():
            return _each(self._encode(images), lambda keys: keys.view(m, n, -1).transpose(0, 1))
        order = counter.permutation(distributed.world_size() * n * m, seed, _SHUFFLE, step, part)
        sample, view = order // m, order % m
        place = (sample // n * m + view) * n + sample % n  # on the ranks a sample's views lie N apart

        def sent(view: Tensor) -> Tensor:
            rows = view.permute(0, 2, 3, 1)  # keeps the channels-last layout
            return distributed.permute(rows, place).permute(0, 3, 1, 2)

        keys = self._encode(_each(images, sent))
        return _each(keys, lambda each: distributed.permute(each, order.argsort()).view(n, m, -1))

    def _shuffles(self) -> bool:
        parts = distributed.world_size() * self.encoder.config.bn_splits * self.passes
        return self._own_statistics and parts > 1

    def _encode(self, images: Any) -> Any:
        if isinstance(images, Tensor):
            return torch.cat([self.encoder(part) for part in images.chunk(self.passes)])
        fields = {name: field.chunk(self.passes) for name, field in images.items()}
        parts = [self.encoder({name: field[i] for name, field in fields.items()}) for i in range(self.passes)]
        return {view: torch.cat([part[view] for part in parts]) for view in parts[0]}


def joined(embeddings: Tensor | Mapping[str, Tensor]) -> Tensor:
    """One unit vector (N, D) per sample; embeddings by view are concatenated."""
    if isinstance(embeddings, Tensor):
        return embeddings
    return F.normalize(torch.cat(list(embeddings.values()), 1), dim=1)


def _unit(output: Tensor) -> Tensor:
    return F.normalize(at_least_float32(output), dim=1)


def _each(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies `function` to one tensor, or to each tensor by name."""
    return function(x) if isinstance(x, Tensor) else {name: function(each) for name, each in x.items()}


def build_encoder(config: EncoderConfig, *, image_size: int | None = None, in_channels: int = 3) -> Encoder:
    """An encoder with random weights. With `image_size`, one such image is passed through the backbone as a test.
    Networks of views have the channels of these, whatever `in_channels` the images have."""
    bounds.check(config)
    in_channels = in_channels if config.split is None else 3
    backbone = build_backbone(
        config.backbone,
        stem=config.stem,
        norm=config.norm,
        bn_splits=config.bn_splits,
        image_size=image_size,
        in_channels=in_channels,
        split=config.split,
    )
    if image_size is not None:
        _try_size(config.backbone, backbone, image_size, in_channels)
    return Encoder(backbone, config, in_channels=in_channels, image_size=image_size)


def _head(kind: Literal["linear", "mlp"], features: int, dim: int) -> nn.Module:
    if kind == "linear":
        return nn.Linear(features, dim)
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(inplace=True), nn.Linear(features, dim))


def _try_size(name: str, backbone: nn.Module, image_size: int, in_channels: int) -> None:
    """Passes one black image, so that a wrong size is one clear line now and no traceback at the first step."""
    backbone.eval()
    try:
        with torch.no_grad():
            if isinstance(backbone, Towers):
                backbone({name: _black(FIELDS[name].channels, image_size) for name in backbone.fields})
            else:
                backbone(_black(in_channels, image_size))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise UserError(f"--backbone {name} does not take --image-size {image_size}: take another size") from error
    finally:
        backbone.train()


def _black(channels: int, size: int) -> Tensor:
    return torch.zeros(1, channels, size, size)
