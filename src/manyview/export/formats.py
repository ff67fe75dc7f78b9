"""The formats, and which of them an encoder can be written in."""

import re
from dataclasses import dataclass
from typing import Literal

from manyview.encoders import Card
from manyview.encoders.backbones import OWN, own_size, takes_any_size
from manyview.errors import UserError
from manyview.fields import IMAGE

Format = Literal["safetensors", "timm", "torchvision", "onnx", "hf", "detectron2"]
ENDINGS: dict[Format, str] = {
    **dict.fromkeys(("safetensors", "timm", "torchvision"), ".safetensors"),
    "onnx": ".onnx",
    "hf": "",  # a folder, of any name
    "detectron2": ".pkl",
}


def check(card: Card, format: Format) -> None:
    """Refuses a format whose names and whose function are not those of the encoder."""
    known = formats(card)
    if format not in known:
        raise UserError(f"--format {format} has no {_described(card)}: this encoder can be written as {_listed(known)}")


def formats(card: Card) -> list[Format]:
    """What the encoder can be written as."""
    name, found = card.backbone, list[Format](["safetensors"])
    if card.fields == (IMAGE,):
        found.append("onnx")
    if card.stem != "standard" or card.norm != "batch" or card.in_channels != 3 or card.split or name in OWN:
        return found
    import torchvision

    found.append("hf")  # whose configuration knows the image size
    if takes_any_size(name) or card.image_size == own_size(name):
        found.append("timm")
    if resnet(name) is not None and name in torchvision.models.list_models():
        found += ["torchvision", "detectron2"]
    return found


@dataclass(frozen=True)
class ResNet:
    """What tells the ResNets that several libraries know by the same names of their layers."""

    depth: int
    groups: int = 1
    width: int = 64
    """Of a group in the first stage."""


def resnet(name: str) -> ResNet | None:
    """Such as resnet50, resnext50_32x4d and wide_resnet50_2."""
    found = re.fullmatch(r"resnet(\d+)|resnext(\d+)_(\d+)x(\d+)d|wide_resnet(\d+)_(\d+)", name)
    if found is None:
        return None
    plain, grouped, groups, width, wide, factor = (int(number or 0) for number in found.groups())
    return ResNet(plain or grouped or wide, groups or 1, width or 64 * (factor or 1))


def _described(card: Card) -> str:
    traits = [f"--stem {card.stem}"] * (card.stem != "standard") + [f"--norm {card.norm}"] * (card.norm != "batch")
    if not takes_any_size(card.backbone):
        traits.append(f"--image-size {card.image_size}")
    if card.in_channels != 3:
        traits.append(f"input channels {card.in_channels}")
    if card.split:
        traits.append(f"--split {card.split}")
    return card.backbone + (f" with {' and '.join(traits)}" if traits else "")


def _listed(known: list[Format]) -> str:
    *others, last = known
    return f"{', '.join(others)} or {last}" if others else last
