"""Backbones by name: images (N, 3, H, W) in, features (N, F) out. All of timm's, and two for small images."""

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import timm
import torch
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from manyview.encoders.norms import SplitBatchNorm, SyncBatchNorm, group_norm_like, replace_batch_norm
from manyview.errors import UserError

__all__ = [
    "OWN",
    "AlexNetSmall",
    "Norm",
    "Stem",
    "build_backbone",
    "feature_width",
    "is_known",
    "own_size",
    "takes_any_size",
    "tiny",
]

Stem = Literal["standard", "small"]
Norm = Literal["batch", "sync", "group"]


def build_backbone(
    name: str,
    *,
    stem: Stem = "standard",
    norm: Norm = "batch",
    bn_splits: int = 1,
    image_size: int | None = None,
) -> nn.Module:
    """The network `name` with fresh weights, in channels-last layout.

    `image_size` matters to networks that are built for one size (transformers, `alexnet-small`).
    """
    network = OWN[name](image_size) if name in OWN else _from_timm(name, image_size)
    if stem == "small" and name not in OWN:
        _small_stem(name, network)
    if norm == "group":
        replace_batch_norm(network, group_norm_like)
    elif norm == "sync":
        replace_batch_norm(network, SyncBatchNorm)
    elif bn_splits > 1:
        replace_batch_norm(network, partial(SplitBatchNorm, splits=bn_splits))
    return network.to(memory_format=torch.channels_last)


def feature_width(network: nn.Module) -> int:
    """F. Where timm's classifier has a hidden layer (VGG, MobileNet), `num_features` is what goes into that layer."""
    return int(getattr(network, "head_hidden_size", None) or network.num_features)  # type: ignore[arg-type]


def is_known(name: str) -> bool:
    """`is_model` knows no "hf-hub:" names: a backbone that a file names must never start a download."""
    return name in OWN or bool(timm.is_model(name))


def takes_any_size(name: str) -> bool:
    """Whether the network takes images of other sizes than the one that it was built for."""
    if name in OWN:
        return name != "alexnet-small"
    settings = timm.get_pretrained_cfg(name)
    return settings is None or not settings.fixed_input_size


def own_size(name: str) -> int | None:
    """The image size that timm builds the network for unless it is told otherwise."""
    settings = timm.get_pretrained_cfg(name)
    return None if settings is None else int(settings.input_size[-1])


def _from_timm(name: str, image_size: int | None) -> nn.Module:
    if not is_known(name):
        near = difflib.get_close_matches(name, [*OWN, *timm.list_models()], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"take {', '.join(OWN)} or a name of timm.list_models()"
        raise UserError(f"--backbone {name} is unknown: {hint}")
    size: dict[str, Any] = {} if image_size is None or takes_any_size(name) else {"img_size": image_size}
    # The papers train torchvision's ResNets, whose residual branches do not start at zero.
    start: dict[str, Any] = {"zero_init_last": False} if timm.models.is_model_in_modules(name, ["resnet"]) else {}
    try:
        network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **size, **start)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        if not size:
            raise
        raise UserError(
            f"--backbone {name} cannot be built for --image-size {image_size}: take another size"
        ) from error
    return network


def _small_stem(name: str, network: nn.Module) -> None:
    if not isinstance(network, ResNet):
        raise UserError(
            f"--stem small is defined for ResNets, not for --backbone {name}: take --stem standard, or a ResNet"
        )
    _one_convolution(network, stride=1)


def _one_convolution(network: ResNet, *, stride: int) -> None:
    """Whatever stands before the first stage becomes one 3×3 convolution, without pooling."""
    width: Any = network.feature_info[0]["num_chs"]
    convolution = nn.Conv2d(3, width, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")  # as timm starts all others
    network.add_module("conv1", convolution)
    network.add_module("maxpool", nn.Identity())


def tiny() -> ResNet:
    """A ResNet-10 of half the usual width: 1.2 M parameters, F = 256, for images of 16–96 px.

    The stem halves the size at once: at full size the first stage alone would cost as much as all of this network.
    """
    network = ResNet(
        BasicBlock,  # type: ignore[arg-type]  # timm's hint asks for an instance, its code for the class
        (1, 1, 1, 1),
        num_classes=0,
        channels=(32, 64, 128, 256),
        stem_type="deep",
        stem_width=16,  # half of what enters the first stage; the deep stem itself is replaced
        zero_init_last=False,
    )
    _one_convolution(network, stride=2)
    return network


class AlexNetSmall(nn.Module):
    """The AlexNet-like encoder of CACR, C.1, for images of 16–96 px; its features are fc7 (F = 4096).

    C.1 takes the architecture of CMC and of Wang & Isola. CMC's Table 10 shows one half of it (48, 96, 192, 192, 96
    channels, then 2048, 2048), as CMC splits it over two views; with one encoder for all views the halves stand
    together. fc6 covers the whole grid: 7×7 for the 64 px of the table, 3×3 for CIFAR's 32 px. The texts leave the
    normalisation open; here every layer has a batch normalisation. fc8 is the `linear` head.
    """

    smallest, largest = 16, 96

    def __init__(self, image_size: int = 32) -> None:
        super().__init__()
        if not self.smallest <= image_size <= self.largest:
            raise UserError(
                f"--backbone alexnet-small takes images of {self.smallest} to {self.largest} px, "
                f"not --image-size {image_size}: take a ResNet"
            )
        self.image_size = image_size
        self.num_features = 4096
        self.conv1 = _convolution(3, 96, pool=True)
        self.conv2 = _convolution(96, 192, pool=True)
        self.conv3 = _convolution(192, 384)
        self.conv4 = _convolution(384, 384)
        self.conv5 = _convolution(384, 192, pool=True)
        grid = image_size
        for _ in range(3):
            grid = (grid - 3) // 2 + 1
        self.fc6 = _fully_connected(192 * grid**2, 4096)
        self.fc7 = _fully_connected(4096, 4096)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (self.image_size, self.image_size):
            raise ValueError(
                f"alexnet-small was built for {self.image_size} px and got images of {tuple(x.shape[-2:])}"
            )
        x = self.conv5(self.conv4(self.conv3(self.conv2(self.conv1(x)))))
        return self.fc7(self.fc6(x.flatten(1)))  # type: ignore[no-any-return]


def _convolution(inputs: int, outputs: int, *, pool: bool = False) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, *([nn.MaxPool2d(3, stride=2)] if pool else []))


def _fully_connected(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True))


OWN: dict[str, Callable[[int | None], nn.Module]] = {
    "tiny": lambda _: tiny(),
    "alexnet-small": lambda image_size: AlexNetSmall(image_size or 32),
}
