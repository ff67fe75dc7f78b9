"""Encoders on disk: safetensors files that say what they hold, the encoders read from them, and other formats."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from manyview.atomic import replacing
from manyview.encoders.backbones import OWN, build_backbone, is_known, own_size, takes_any_size
from manyview.encoders.encoder import Encoder
from manyview.encoders.features import Card, FrozenEncoder, TrainableEncoder, card_of
from manyview.encoders.towers import Towers
from manyview.errors import UserError
from manyview.run.files import ENCODER
from manyview.views.named import named_views

Format = Literal["safetensors", "timm", "torchvision"]
PLAIN, TOWERS = 1, 2  # versions of the files
# What version 1, which knew nothing but bytes, made of a value: value = factor × number + shift.
UNITS_1 = {"depth": (8.0, 0.0), "normals": (2.0, -1.0), "segmentation": (2.0, 1.0)}
LARGEST_IMAGE = 4096
MOST_CHANNELS = 1024


def save_backbone(
    path: str | Path, encoder: Encoder, *, image_size: int, mean: Sequence[float], std: Sequence[float]
) -> None:
    """Writes the backbone, all or nothing; the same weights give the same bytes."""
    _write(Path(path), encoder.backbone.state_dict(), card_of(encoder, image_size, mean, std))


def load(path: str | Path) -> FrozenEncoder:
    """The encoder of a run directory, or of a file that `save_backbone` or `manyview export` wrote."""
    file = _locate(Path(path))
    tensors, card = _read(file)
    try:
        backbone = _fresh(card, seed=0)
    except UserError as error:
        raise UserError(f"{file} holds no usable encoder: {error}") from error
    _fill(backbone, tensors, file, card.backbone)
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


def export(run_or_file: str | Path, out: str | Path, format: Format) -> None:
    """Writes the backbone for others to load: torchvision's or timm's names of the tensors, or our own file.

    `torchvision` loads into torchvision.models, but for its classifier; `timm` into timm.create_model(num_classes=0).
    """
    file, out = _locate(Path(run_or_file)), Path(out)
    if out.suffix != ".safetensors":
        raise UserError(f"--out {out} must end in .safetensors")
    tensors, card = _read(file)
    formats = _formats(card)
    if format not in formats:
        raise UserError(
            f"--format {format} has no {_describe(card)}: this encoder can be written as {' or '.join(formats)}"
        )
    if format == "safetensors":
        load(file)  # only a file that loads is handed on
    else:
        _fill(_counterpart(card.backbone, format), tensors, file, f"{format}'s {card.backbone}")
    try:
        _write(out, tensors, card if format == "safetensors" else None)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror}): choose another place") from error


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


def _locate(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.exists():
        raise UserError(f"{path} does not exist: give a run directory or an {ENCODER} file")
    if not (path / ENCODER).is_file():
        raise UserError(
            f"{path} holds no {ENCODER}: a run writes it at its end; finish it with `manyview resume {path}`"
        )
    return path / ENCODER


def _read(file: Path) -> tuple[dict[str, Tensor], Card]:
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


def _fill(network: nn.Module, tensors: dict[str, Tensor], file: Path, name: str) -> None:
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


def _write(path: Path, tensors: dict[str, Tensor], card: Card | None) -> None:
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
