"""Encoders in the formats of other programs."""

from pathlib import Path
from typing import Literal

import torch
from torch import nn

from manyview.atomic import writing
from manyview.encoders.backbones import OWN, own_size, takes_any_size
from manyview.encoders.features import Card
from manyview.encoders.files import content, fill
from manyview.encoders.loading import as_frozen
from manyview.encoders.weights import open_weights
from manyview.errors import UserError

Format = Literal["safetensors", "timm", "torchvision"]


def export(spec: str | Path, out: str | Path, format: Format) -> None:
    """Writes the backbone for others to load: torchvision's or timm's names of the tensors, or our own file.

    `torchvision` loads into torchvision.models, but for its classifier; `timm` into timm.create_model(num_classes=0).
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        raise UserError(f"--out {out} must end in .safetensors")
    weights = open_weights(spec)
    tensors, card = weights.tensors, weights.card
    formats = _formats(card)
    if format not in formats:
        raise UserError(
            f"--format {format} has no {_describe(card)}: this encoder can be written as {' or '.join(formats)}"
        )
    if format == "safetensors":
        as_frozen(weights)  # only what loads is handed on
    else:
        fill(_counterpart(card.backbone, format), tensors, weights.name, f"{format}'s {card.backbone}")
    with writing(out) as file:
        file.write(content(tensors, card if format == "safetensors" else None))


def _counterpart(name: str, format: Format) -> nn.Module:
    """The network that an exported file must fit, without classifier."""
    with torch.random.fork_rng(devices=[]):
        if format == "timm":
            import timm

            network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
        else:
            import torchvision

            network = torchvision.models.get_model(name, weights=None)
            network.fc = nn.Identity()
    return network


def _formats(card: Card) -> list[Format]:
    """What the encoder can be written as: the names of its tensors and its function must be those of the format."""
    name, formats = card.backbone, list[Format](["safetensors"])
    if card.stem != "standard" or card.norm != "batch" or card.in_channels != 3 or card.split or name in OWN:
        return formats
    import torchvision

    if takes_any_size(name) or card.image_size == own_size(name):
        formats.append("timm")
    if name.startswith(("resnet", "resnext", "wide_resnet")) and name in torchvision.models.list_models():
        formats.append("torchvision")
    return formats


def _describe(card: Card) -> str:
    traits = [f"--stem {card.stem}"] * (card.stem != "standard") + [f"--norm {card.norm}"] * (card.norm != "batch")
    if not takes_any_size(card.backbone):
        traits.append(f"--image-size {card.image_size}")
    if card.in_channels != 3:
        traits.append(f"input channels {card.in_channels}")
    if card.split:
        traits.append(f"--split {card.split}")
    return card.backbone + (f" with {' and '.join(traits)}" if traits else "")
