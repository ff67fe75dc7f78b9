"""Encoders on disk: safetensors files that say what they hold, the encoders read from them, and other formats."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from manyview.atomic import replacing
from manyview.encoders.backbones import build_backbone, is_known
from manyview.encoders.encoder import Encoder
from manyview.encoders.features import Card, FrozenEncoder, TrainableEncoder, card_of
from manyview.encoders.towers import Towers
from manyview.errors import UserError
from manyview.run.files import ENCODER
from manyview.views.named import named_views

PLAIN, TOWERS = 1, 2  # versions of the files
# What version 1, which knew nothing but bytes, made of a value: value = factor × number + shift.
UNITS_1 = {"depth": (8.0, 0.0), "normals": (2.0, -1.0), "segmentation": (2.0, 1.0)}
LARGEST_IMAGE = 4096
MOST_CHANNELS = 1024


def save_backbone(
    path: str | Path, encoder: Encoder, *, image_size: int, mean: Sequence[float], std: Sequence[float]
) -> None:
    """Writes the backbone, all or nothing; the same weights give the same bytes."""
    write(Path(path), encoder.backbone.state_dict(), card_of(encoder, image_size, mean, std))


def load(path: str | Path) -> FrozenEncoder:
    """The encoder of a run directory, or of a file that `save_backbone` or `manyview export` wrote."""
    file = locate(Path(path))
    tensors, card = read(file)
    try:
        backbone = _fresh(card, seed=0)
    except UserError as error:
        raise UserError(f"{file} holds no usable encoder: {error}") from error
    fill(backbone, tensors, file, card.backbone)
    return FrozenEncoder(backbone, card)


def trainable(encoder: str | Path | FrozenEncoder) -> TrainableEncoder:
    """The encoder of a run directory or of a file, or a copy of a frozen one, to be trained on."""
    frozen = encoder if isinstance(encoder, FrozenEncoder) else load(encoder)
    return TrainableEncoder(copy.deepcopy(frozen.backbone), frozen.card)


def random_like(frozen: FrozenEncoder, seed: int) -> FrozenEncoder:
    """The same encoder before any training: what an evaluation has to beat."""
    encoder = FrozenEncoder(_fresh(frozen.card, seed), frozen.card)
    if isinstance(frozen.backbone, Towers):  # what was measured of the images is not learnt
        encoder.backbone.get_submodule("normalise").load_state_dict(frozen.backbone.normalise.state_dict())
    return encoder.to(frozen.mean.device, frozen.mean.dtype)


def _fresh(card: Card, seed: int) -> nn.Module:
    """The network of a card with random weights, which leaves the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build_backbone(
            card.backbone,
            stem=card.stem,
            norm=card.norm,
            image_size=card.image_size,
            in_channels=card.in_channels,
            split=card.split,
        )


def locate(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.exists():
        raise UserError(f"{path} does not exist: give a run directory or an {ENCODER} file")
    if not (path / ENCODER).is_file():
        raise UserError(
            f"{path} holds no {ENCODER}: a run writes it at its end; finish it with `manyview resume {path}`"
        )
    return path / ENCODER


def read(file: Path) -> tuple[dict[str, Tensor], Card]:
    try:
        with safe_open(file, framework="pt") as content:
            metadata = content.metadata() or {}
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{file} cannot be read as safetensors ({error}): it is damaged, or another kind of file"
        ) from error
    if "manyview" not in metadata:
        raise UserError(f"{file} is not an encoder of manyview: its metadata lacks the entry 'manyview'")
    try:
        card = _parse(metadata["manyview"])
        return (tensors if card.split is None else _by_name(tensors, card.split)), card
    except (KeyError, RuntimeError, RecursionError, TypeError, ValueError, UserError) as error:
        raise UserError(f"{file} holds no usable encoder: its metadata is wrong ({error})") from error


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
    if type(size) is not int or not 1 <= size <= LARGEST_IMAGE:
        raise ValueError(f"image_size {size!r}")
    mean, std = _channel_numbers(fields["mean"]), _channel_numbers(fields["std"])
    if len(mean) != len(std) or min(std) <= 0:
        raise ValueError(f"std {std} for {len(mean)} channels")
    split = fields.get("split")
    if split is not None and (not isinstance(split, str) or not named_views(split) or len(mean) < 3):
        raise ValueError(f"split {split!r} for {len(mean)} channels")
    if split is not None:  # version 1 had numbers that change nothing for other fields too
        mean, std = mean[:3], std[:3]
    return Card(fields["backbone"], fields["stem"], fields["norm"], size, mean, std, split)


def _by_name(tensors: dict[str, Tensor], split: str) -> dict[str, Tensor]:
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


def _channel_numbers(values: Any) -> tuple[float, ...]:
    """As many as the network has input channels, which is how a file tells them."""
    numbers = tuple(float(value) for value in values)
    if not 1 <= len(numbers) <= MOST_CHANNELS or not all(abs(number) < 1e6 for number in numbers):
        raise ValueError(f"{values!r} are not numbers for 1 to {MOST_CHANNELS} channels")
    return numbers


def fill(network: nn.Module, tensors: dict[str, Tensor], file: Path, name: str) -> None:
    """A strict load whose complaint is one line."""
    wanted = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    given = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    wrong = sorted(key for key in wanted.keys() | given.keys() if wanted.get(key) != given.get(key))
    if wrong:
        key = wrong[0]
        raise UserError(
            f"{file} does not fit {name}: {len(wrong)} tensors differ, such as {key}, "
            f"{given.get(key, 'absent')} in the file and {wanted.get(key, 'absent')} in the network"
        )
    network.load_state_dict(tensors)


def write(path: Path, tensors: dict[str, Tensor], card: Card | None) -> None:
    fields = {} if card is None else asdict(card)
    if not fields.get("split"):
        fields.pop("split", None)  # so that files of other encoders stay as they were
    # A single entry: safetensors orders several by chance, and equal weights must give equal bytes.
    version = TOWERS if fields.get("split") else PLAIN
    metadata = None if card is None else {"manyview": json.dumps({"version": version, **fields}, sort_keys=True)}
    content = safetensors.torch.save(plain(tensors), metadata)
    with replacing(path) as file:
        file.write(content)


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As safetensors takes them: on the CPU, in one piece, sharing no memory."""
    return {name: each.detach().cpu().clone(memory_format=torch.contiguous_format) for name, each in tensors.items()}
