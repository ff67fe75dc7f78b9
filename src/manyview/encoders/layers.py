"""Outputs of a backbone's layers by name."""

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn

from manyview.errors import UserError
from manyview.precision import at_least_float32


def layer_features(
    backbone: nn.Module, images: Tensor, names: Iterable[str], *, keep: Callable[[Tensor], Tensor] = torch.clone
) -> dict[str, Tensor]:
    """Outputs of the named layers in one pass of images (N, C, H, W): maps (N, c, h, w), or vectors (N, F).

    `keep` makes of each output, at once, what is returned. It must not share memory with the output, which the layer
    behind it may overwrite.
    """
    return with_layers(backbone, images, names, keep=keep)[1]


def layer_maps(backbone: nn.Module, images: Tensor, names: Iterable[str]) -> dict[str, Tensor]:
    """Outputs of the named layers as maps (N, c, h, w), in at least float32. Tokens (N, T, c) are those of a square of
    patches, behind as many others as timm's `num_prefix_tokens` says."""
    found = {}
    for name, output in layer_features(backbone, images, names).items():
        tokens = output[:, getattr(backbone, "num_prefix_tokens", 0) :] if output.ndim == 3 else output
        side = math.isqrt(tokens.shape[1])
        if tokens.ndim == 3 and side**2 == tokens.shape[1]:
            found[name] = at_least_float32(tokens.mT.unflatten(2, (side, side)))
        elif tokens.ndim == 4:
            found[name] = at_least_float32(tokens)
        else:
            raise UserError(f"--layer {name} gives no feature map but {tuple(output.shape[1:])} for each image")
    return found


def with_layers(
    backbone: nn.Module, images: Tensor, names: Iterable[str], *, keep: Callable[[Tensor], Tensor] = torch.clone
) -> tuple[Tensor, dict[str, Tensor]]:
    """What the backbone gives, and what the named layers give on the way: see `layer_features`."""
    layers = find_layers(backbone, names)
    channels_last = getattr(backbone, "output_fmt", None) == "NHWC"  # so timm marks Swin and its like
    found: dict[str, Tensor] = {}
    with ExitStack() as hooks:  # gone whatever happens: a hook left behind would keep every later output alive
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_hook(partial(_note, found, name, keep, channels_last)))
        output = backbone(images)
    missed = [name for name in layers if name not in found]
    if missed:
        raise UserError(f"--layer {','.join(missed)} gives no tensor when an image passes: {_choice(backbone)}")
    return output, {name: found[name] for name in layers}


def find_layers(backbone: nn.Module, names: Iterable[str]) -> dict[str, nn.Module]:
    """The named layers, also those within others (`layer1.0`)."""
    names = list(names)
    modules = dict(backbone.named_modules(remove_duplicate=False))
    unknown = [name for name in names if not name or name not in modules]
    if unknown:
        raise UserError(f"--layer {','.join(unknown)} is no layer of this backbone: {_choice(backbone)}")
    return {name: modules[name] for name in names}


def _choice(backbone: nn.Module) -> str:
    return f"take some of {', '.join(name for name, _ in backbone.named_children())}"


def _note(
    found: dict[str, Tensor],
    name: str,
    keep: Callable[[Tensor], Tensor],
    channels_last: bool,
    layer: nn.Module,
    inputs: tuple[object, ...],
    output: object,
) -> None:
    if isinstance(output, Tensor):
        found[name] = keep(output.movedim(-1, 1) if channels_last and output.ndim == 4 else output)
