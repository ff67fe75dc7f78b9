"""Our own encoder files: safetensors with a card that says what they hold."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from manyview.atomic import replacing
from manyview.bounds import MOST_CHANNELS
from manyview.encoders.backbones import is_known
from manyview.encoders.encoder import Encoder
from manyview.encoders.features import Card, card_of
from manyview.errors import UserError, one_line
from manyview.views.named import named_views

METADATA = "manyview"  # the entry with the card
PLAIN, TOWERS = 1, 2  # versions of the files
# What version 1, which knew nothing but bytes, made of a value: value = factor × number + shift.
UNITS_1 = {"depth": (8.0, 0.0), "normals": (2.0, -1.0), "segmentation": (2.0, 1.0)}
LARGEST_IMAGE = 4096


def save_backbone(
    path: str | Path, encoder: Encoder, *, image_size: int, mean: Sequence[float], std: Sequence[float]
) -> None:
    """Writes the backbone, all or nothing; the same weights give the same bytes."""
    write(Path(path), encoder.backbone.state_dict(), card_of(encoder, image_size, mean, std))


def card_in(text: str, path: Path) -> Card:
    """The card that a file says it has."""
    try:
        return _parse(text)
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError, UserError) as error:
        raise UserError(f"{path} holds no usable encoder: its metadata is wrong ({one_line(error)})") from error


def card_as_text(card: Card) -> str:
    fields = asdict(card)
    if not fields["split"]:
        del fields["split"]  # so that files of other encoders stay as they were
    return json.dumps({"version": TOWERS if card.split else PLAIN, **fields}, sort_keys=True)


def _parse(text: str) -> Card:
    """Trusts nothing: each field has its type and its range."""
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    if fields.get("version") not in ((PLAIN, TOWERS) if fields.get("split") else (PLAIN,)):
        raise ValueError(f"version {fields.get('version')!r}, which this manyview does not read")
    if not isinstance(fields["backbone"], str) or not is_known(fields["backbone"]):
        raise ValueError(f"backbone {fields['backbone']!r} is unknown")
    if fields["stem"] not in ("standard", "small") or fields["norm"] not in ("batch", "group"):
        raise ValueError(f"stem {fields['stem']!r} or norm {fields['norm']!r} is unknown")
    size = fields["image_size"]
    if type(size) is not int:
        raise ValueError(f"image_size {size!r}")
    mean, std = (tuple(map(float, fields[name])) for name in ("mean", "std"))
    split = fields.get("split")
    if split is not None and (not isinstance(split, str) or not named_views(split) or len(mean) < 3):
        raise ValueError(f"split {split!r} for {len(mean)} channels")
    card = checked(Card(fields["backbone"], fields["stem"], fields["norm"], size, mean, std, split))
    # Version 1 had numbers that change nothing for other fields too.
    return card if split is None else replace(card, mean=mean[:3], std=std[:3])


def checked(card: Card) -> Card:
    """The card, whose numbers a file has said; raises a ValueError if they cannot be."""
    if not 1 <= card.image_size <= LARGEST_IMAGE:
        raise ValueError(f"images of {card.image_size:,} px instead of 1 to {LARGEST_IMAGE:,}")
    for name, numbers in (("mean", card.mean), ("std", card.std)):
        if not 1 <= len(numbers) <= MOST_CHANNELS:
            raise ValueError(f"{name} of {len(numbers):,} channels instead of 1 to {MOST_CHANNELS:,}")
        if not all(abs(number) < 1e6 for number in numbers):
            raise ValueError(f"{name} {numbers} is out of range")
    if len(card.mean) != len(card.std) or min(card.std) <= 0:
        raise ValueError(f"std {card.std} for {len(card.mean)} channels")
    return card


def by_name(tensors: dict[str, Tensor], split: str) -> dict[str, Tensor]:
    """Version 1 had the means and deviations of all views in one tensor each."""
    if "mean" not in tensors:
        return tensors
    views = named_views(split)
    counts = [len(view.channels) for view in views.values()]
    means, deviations = tensors.pop("mean").split(counts), tensors.pop("std").split(counts)
    for (name, view), mean, std in zip(views.items(), means, deviations, strict=True):
        factor, shift = UNITS_1.get(view.field, (1.0, 0.0))
        tensors[f"normalise.{name}.mean"], tensors[f"normalise.{name}.std"] = mean * factor + shift, std * factor
    return tensors


def fill(network: nn.Module, tensors: Mapping[str, Tensor], file: str | Path, name: str) -> None:
    """A strict load whose complaint is one line."""
    wanted = {key: tensor.shape for key, tensor in network.state_dict().items()}
    if complaint := no_match({key: tensor.shape for key, tensor in tensors.items()}, wanted):
        raise UserError(f"{file} does not fit {name}: {complaint}")
    network.load_state_dict(dict(tensors))


def no_match(given: Mapping[str, torch.Size], wanted: Mapping[str, torch.Size]) -> str:
    """In which tensors a file differs from a network; nothing where it fits."""
    wrong = sorted(key for key in wanted.keys() | given.keys() if wanted.get(key) != given.get(key))
    if not wrong:
        return ""
    here, there = (tuple(each[wrong[0]]) if wrong[0] in each else "absent" for each in (given, wanted))
    return f"{len(wrong)} tensors differ, such as {one_line(wrong[0])}, {here} in the file and {there} in the network"


def write(path: Path, tensors: Mapping[str, Tensor], card: Card | None) -> None:
    # A single entry: safetensors orders several by chance, and equal weights must give equal bytes.
    content = safetensors.torch.save(plain(tensors), None if card is None else {METADATA: card_as_text(card)})
    with replacing(path) as file:
        file.write(content)


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As safetensors takes them: on the CPU, in one piece, sharing no memory."""
    return {name: each.detach().cpu().clone(memory_format=torch.contiguous_format) for name, each in tensors.items()}
