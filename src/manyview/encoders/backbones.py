"""Backbones by name: images (N, C, H, W) in, features (N, F) out. All of timm's, and our own."""

import difflib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from manyview.encoders.norms import FixedBatchNorm, SplitBatchNorm, SyncBatchNorm, group_norm_like, replace_batch_norm
from manyview.encoders.plain import PLAIN, build_plain
from manyview.encoders.towers import Towers
from manyview.errors import UserError

if TYPE_CHECKING:  # timm takes longer to import than all else: it is imported where a network is built
    from timm.models.resnet import BasicBlock, Bottleneck, ResNet


Stem = Literal["standard", "small"]
Norm = Literal["batch", "sync", "fixed", "group"]


def build_backbone(
    name: str,
    *,
    stem: Stem = "standard",
    norm: Norm = "batch",
    bn_splits: int = 1,
    image_size: int | None = None,
    in_channels: int = 3,
    split: str | None = None,
) -> nn.Module:
    """The network `name` with fresh weights, in channels-last layout.

    `image_size` matters to networks that are built for one size (transformers, AlexNets). With `split`, words
    of `named_views`, there is one such network for each of these views.
    """
    if split is not None:
        of_a_view = partial(build_backbone, name, stem=stem, norm=norm, bn_splits=bn_splits, image_size=image_size)
        return Towers(split, lambda channels: of_a_view(in_channels=channels), feature_width)
    network = OWN[name](image_size, in_channels) if name in OWN else _from_timm(name, image_size, in_channels)
    if stem == "small" and (name not in OWN or name in _WIDTHS):
        _small_stem(name, network, in_channels)
    if norm == "group":
        replace_batch_norm(network, group_norm_like)
    elif norm == "sync":
        replace_batch_norm(network, SyncBatchNorm)
    elif norm == "fixed":
        replace_batch_norm(network, FixedBatchNorm)
    elif bn_splits > 1:
        replace_batch_norm(network, partial(SplitBatchNorm, splits=bn_splits))
    return network.to(memory_format=torch.channels_last)


def once_trained(norm: Norm) -> Norm:
    """What is left to know of the normalisation when the weights do not change any more."""
    return "group" if norm == "group" else "batch"


def feature_width(network: nn.Module) -> int:
    """F. Where timm's classifier has a hidden layer (VGG, MobileNet), `num_features` is what goes into that layer."""
    return int(getattr(network, "head_hidden_size", None) or network.num_features)  # type: ignore[arg-type]


def is_known(name: str) -> bool:
    """Names with "hf-hub:" are unknown to `is_model`, so a backbone named in a file never starts a download."""
    import timm

    return name in OWN or bool(timm.is_model(name))


def is_resnet(name: str) -> bool:
    """Whether it is one of timm's ResNets, whose first layers can be replaced."""
    import timm

    return name not in OWN and bool(timm.models.is_model_in_modules(name, ["resnet"]))


def takes_any_size(name: str) -> bool:
    """Whether the network takes images of other sizes than the one that it was built for."""
    if name in OWN:
        return name not in PLAIN
    import timm

    settings = timm.get_pretrained_cfg(name)
    return settings is None or not settings.fixed_input_size


def own_size(name: str) -> int | None:
    """The image size that timm builds the network for unless it is told otherwise."""
    import timm

    settings = timm.get_pretrained_cfg(name)
    return None if settings is None else int(settings.input_size[-1])


def _from_timm(name: str, image_size: int | None, in_channels: int) -> nn.Module:
    import timm

    if not is_known(name):
        near = difflib.get_close_matches(name, [*OWN, *timm.list_models()], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"take {', '.join(OWN)} or a name of timm.list_models()"
        raise UserError(f"--backbone {name} is unknown: {hint}")
    asked: dict[str, Any] = {} if image_size is None or takes_any_size(name) else {"img_size": image_size}
    if in_channels != 3:
        asked["in_chans"] = in_channels
    # The papers train torchvision's ResNets, whose residual branches do not start at zero.
    start: dict[str, Any] = {"zero_init_last": False} if is_resnet(name) else {}
    try:
        network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **asked, **start)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        if "img_size" in asked:
            raise UserError(
                f"--backbone {name} cannot be built for --image-size {image_size}: take another size"
            ) from error
        if asked:
            raise UserError(
                f"--backbone {name} cannot be built for {in_channels} input channels: take a ResNet"
            ) from error
        raise
    return network


def _small_stem(name: str, network: nn.Module, in_channels: int) -> None:
    from timm.models.resnet import ResNet

    if not isinstance(network, ResNet):
        raise UserError(
            f"--stem small is defined for ResNets, not for --backbone {name}: take --stem standard, or a ResNet"
        )
    _first_convolution(network, in_channels, kernel=3, stride=1)
    network.add_module("maxpool", nn.Identity())


def _first_convolution(network: "ResNet", in_channels: int, *, kernel: int, stride: int) -> None:
    """Replaces all layers before the first normalisation by one convolution."""
    width: Any = network.feature_info[0]["num_chs"]
    convolution = nn.Conv2d(in_channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")  # as timm starts all others
    network.add_module("conv1", convolution)


def _resnet(block: "type[BasicBlock] | type[Bottleneck]", blocks: tuple[int, ...], width: int) -> "ResNet":
    """A ResNet whose first stage, and what enters it, is `width` wide; its first layers are still to be set."""
    from timm.models.resnet import ResNet

    return ResNet(
        block,  # type: ignore[arg-type]  # timm's hint asks for an instance, its code for the class
        blocks,
        num_classes=0,
        channels=(width, 2 * width, 4 * width, 8 * width),
        stem_type="deep",  # the one whose width can be chosen
        stem_width=width // 2,  # half of what enters the first stage
        zero_init_last=False,
    )


def tiny(in_channels: int = 3) -> "ResNet":
    """A ResNet-10 of half the usual width: 1.2 M parameters, F = 256, for images of 16–96 px.

    The stem halves the size at once: at full size the first stage alone would cost as much as all of this network.
    """
    from timm.models.resnet import BasicBlock

    network = _resnet(BasicBlock, (1, 1, 1, 1), 32)
    _first_convolution(network, in_channels, kernel=3, stride=2)
    network.add_module("maxpool", nn.Identity())
    return network


def resnet50(width: float, in_channels: int = 3) -> "ResNet":
    """ResNet-50 with `width` times the channels in every layer, F = 2048 × width (CMC, Table 1).

    Other than in `wide_resnet50_2`, which widens the 3×3 convolutions alone.
    """
    from timm.models.resnet import Bottleneck

    network = _resnet(Bottleneck, (3, 4, 6, 3), round(64 * width))
    _first_convolution(network, in_channels, kernel=7, stride=2)
    return network


def _widened(width: float, image_size: int | None, in_channels: int) -> "ResNet":
    return resnet50(width, in_channels)


_WIDTHS = {"resnet50x0.5": 0.5, "resnet50x2": 2.0}

OWN: dict[str, Callable[[int | None, int], nn.Module]] = {
    "tiny": lambda _, in_channels: tiny(in_channels),
    **{name: partial(build_plain, name) for name in PLAIN},
    **{name: partial(_widened, width) for name, width in _WIDTHS.items()},
}
