"""Weights from anywhere: runs, finished or not, encoder files, timm, and files of other programs."""

import json
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from manyview.encoders.backbones import OWN, build_backbone, is_known, once_trained
from manyview.encoders.encoder import Encoder
from manyview.encoders.features import Card, network_of
from manyview.encoders.files import METADATA, by_name, card_in, checked, no_match
from manyview.errors import UserError, one_line
from manyview.run.files import CHECKPOINTS, ENCODER, kept

TIMM = "timm"
# What the file of another program may be, tried in this order where nothing says it.
COMMON = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d"),
    *("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224", "vit_large_patch16_224"),
    *("vit_small_patch14_dinov2", "vit_base_patch14_dinov2", "convnext_tiny", "convnext_small", "convnext_base"),
    *("efficientnet_b0", "mobilenetv3_large_100", "swin_tiny_patch4_window7_224", "tiny"),
)
# Where other programs keep the network that they trained.
CONTAINERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "model_ema", "teacher")
PREFIXES = (
    *("module.", "_orig_mod.", "encoder_q.", "base_encoder.", "momentum_encoder.", "encoder.", "backbone."),
    *("model.", "teacher.", "student.", "network.", "net.", "trunk."),
)
# A ResNet as the list of its layers, which is how lightly's users write one.
AS_LIST = {"0.": "conv1.", "1.": "bn1.", "4.": "layer1.", "5.": "layer2.", "6.": "layer3.", "7.": "layer4."}
WRAPPERS = 4  # at most, around each other
PICKLED = (".pth", ".pt", ".bin", ".ckpt", ".tar")
NUMBERS = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


@dataclass(frozen=True)
class Weights:
    """A trained backbone: its tensors, and what the network is."""

    tensors: Mapping[str, Tensor]
    card: Card
    name: str
    """As it can be named again."""
    remark: str = ""
    """What the user should know of them, where it is not what was asked for."""


def open_weights(spec: str | Path, backbone: str | None = None) -> Weights:
    """The weights that `spec` names: a run directory, an encoder file, a file or a folder of another program, or
    timm:NAME. `backbone` is the network in a file that does not say it."""
    weights = _opened(spec, backbone)
    for name, tensor in weights.tensors.items():
        if tensor.dtype not in NUMBERS or tensor.layout != torch.strided or tensor.is_meta:
            kind = "without values" if tensor.is_meta else f"{tensor.dtype} {tensor.layout}".replace("torch.", "")
            raise UserError(f"{weights.name} holds {one_line(name)} as {kind}: save its weights as plain numbers")
    return weights


def _opened(spec: str | Path, backbone: str | None) -> Weights:
    if (found := re.fullmatch(rf"{TIMM}(?::(.*))?", str(spec))) is not None:
        return _of_timm(found[1] or "", backbone)
    path = Path(spec).expanduser()
    if not path.exists():
        raise UserError(
            f"{path} does not exist: give a run directory, an encoder file, a file of weights, or timm:NAME"
        )
    if path.is_file():
        return _of_file(path, backbone)
    if (path / ENCODER).is_file():
        return _of_file(path / ENCODER, backbone)
    if (path / "config.json").is_file() and (path / "model.safetensors").is_file():
        return _of_timm_folder(path)
    if not (checkpoints := kept(path / CHECKPOINTS)):
        raise UserError(f"{path} holds no {ENCODER} and no checkpoint: give the --out of a `manyview pretrain`")
    return _of_checkpoint(path, checkpoints[-1])


def _of_checkpoint(run: Path, path: Path) -> Weights:
    """Of a run that is not finished, or that was interrupted."""
    state = _unpickled(path)
    steps, card, start = state.get("step"), state.get("card"), "encoder.backbone."
    method = state.get("method")
    if not isinstance(steps, int) or not isinstance(card, str) or not isinstance(method, dict):
        raise UserError(f"{run} is not finished, and {path.name} is of an earlier manyview: `manyview resume {run}`")
    tensors = {name.removeprefix(start): each for name, each in _tensors(method).items() if name.startswith(start)}
    remark = f"{run} is not finished: its encoder is that of the checkpoint after step {steps:,}"
    return _fitting(Weights(tensors, card_in(card, path), str(run), remark))


def _of_file(path: Path, backbone: str | None) -> Weights:
    """`.pth` and the like are read without unpickling anything but tensors."""
    if path.suffix.lower() in PICKLED:
        return _recognised(path, _tensors(_unpickled(path)), backbone)
    try:
        with safe_open(path, framework="pt") as content:
            metadata = content.metadata() or {}
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}): it is damaged, or another kind of file"
        ) from error
    if METADATA not in metadata:
        return _recognised(path, tensors, backbone)
    card = card_in(metadata[METADATA], path)
    return _fitting(Weights(tensors if card.split is None else by_name(tensors, card.split), card, str(path)))


def _fitting(weights: Weights) -> Weights:
    """Complains of tensors that are not those of the network on their card before it is built: a small file may name a
    network of gigabytes."""
    card, given = weights.card, {name: each.shape for name, each in weights.tensors.items()}
    try:
        wanted = _shapes_of(card.backbone, card)
    except UserError as error:
        raise UserError(f"{weights.name} holds no usable encoder: {error}") from error
    if complaint := no_match(given, wanted):
        raise UserError(f"{weights.name} does not fit {card.backbone}: {complaint}")
    return weights


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file, or for one that holds more than tensors
        reason = one_line(str(error).partition("\n")[0].split(". ")[0])
        if " " not in reason:  # as a KeyError of a number
            reason = type(error).__name__
        raise UserError(
            f"{path} cannot be read ({reason}): it is damaged, or holds more than weights; save its state_dict alone, "
            "or better as .safetensors"
        ) from error
    if not isinstance(state, dict):
        raise UserError(f"{path} holds no weights by name: save a state_dict")
    return state


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    for name in CONTAINERS:
        if isinstance(inner := state.get(name), dict) and any(isinstance(each, Tensor) for each in inner.values()):
            state = inner
            break
    return {str(name): each for name, each in state.items() if isinstance(each, Tensor)}


def _of_timm_folder(folder: Path) -> Weights:
    """As timm saves a model for the Hugging Face hub."""
    try:
        said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        name = said["architecture"]
        settings = {**said, **said.get("pretrained_cfg", {})}
        if not isinstance(name, str) or not is_known(name):
            raise UserError(f"{folder / 'config.json'} names the network {name!r}, which timm does not know here")
        card = _timm_card(name, settings)
    except (ArithmeticError, OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{folder / 'config.json'} is not that of a timm model ({one_line(repr(error))}): download it anew"
        ) from error
    return Weights(_of_file(folder / "model.safetensors", name).tensors, card, str(folder))


def _of_timm(asked: str, backbone: str | None) -> Weights:
    """`asked` is a model, with or without the tag of its weights; or a tag, of the weights of `backbone`; or nothing,
    for its default ones."""
    import timm

    name = asked if asked and (backbone is None or timm.is_model(asked)) else f"{backbone}.{asked}".rstrip(".")
    if not asked and backbone is None:
        raise UserError(f"{TIMM} does not say which model: write {TIMM}:NAME, such as {TIMM}:resnet50")
    network, _, tag = name.partition(".")
    if network in OWN or not timm.is_model(network):
        raise UserError(f"timm has no model {network!r}: take a name of timm.list_pretrained()")
    known = timm.list_pretrained(f"{network}.*")
    if not known:
        raise UserError(f"timm has no weights of {network}: take a name of timm.list_pretrained()")
    if tag and name not in known:
        tags = ", ".join(each.partition(".")[2] for each in known)
        raise UserError(f"timm has no weights {tag!r} of {network}: choose one of {tags}")
    try:
        with _quiet("huggingface_hub", "timm", "httpx"):
            model: Any = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # of the network, of the hub, of the disk: each library has its own kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0]
        raise UserError(
            f"timm's weights of {name} cannot be fetched ({reason}): where there is no network, fetch them elsewhere "
            "and name the file, such as resnet50.safetensors"
        ) from error
    settings = model.pretrained_cfg
    full = f"{network}.{settings['tag']}" if settings.get("tag") else network
    return Weights(model.state_dict(), _timm_card(network, settings), f"{TIMM}:{full}")


def _timm_card(name: str, settings: Mapping[str, Any]) -> Card:
    """How timm prepares images for a network."""
    mean, std = (tuple(map(float, settings[key])) for key in ("mean", "std"))
    return checked(Card(name.partition(".")[0], "standard", "batch", int(settings["input_size"][-1]), mean, std))


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Without what these libraries log of every attempt."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _recognised(path: Path, tensors: dict[str, Tensor], backbone: str | None) -> Weights:
    """The network whose names and shapes these are."""
    import timm

    variants = list(_variants(tensors, WRAPPERS))
    for name in COMMON if backbone is None else [backbone]:
        settings, wanted = timm.get_pretrained_cfg(name), _shapes_of(name)
        for each in variants:
            if (bare := _matching(each, wanted, settings.classifier if settings else None)) is not None:
                card = _timm_card(name, vars(settings) if settings else {**_IMAGENET})
                try:
                    return Weights(bare, _as_trained(card, bare), str(path))
                except ValueError as error:
                    raise UserError(f"{path} holds no usable {name}: {one_line(error)}") from error
    if backbone is None:
        raise UserError(f"{path} holds the weights of no network that manyview recognises: name it by --backbone")
    raise UserError(f"{path} does not fit --backbone {backbone}: {no_match(_like(variants), _shapes_of(backbone))}")


_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "input_size": (3, 224, 224)}


def _variants(tensors: Mapping[str, Tensor], depth: int) -> Iterator[dict[str, Tensor]]:
    """The tensors with the prefixes of wrappers taken off, one after the other."""
    yield dict(tensors)
    if any(name.startswith("4.0.") for name in tensors):
        listed = ((AS_LIST.get(name[:2]), name[2:], tensor) for name, tensor in tensors.items())
        yield {start + rest: tensor for start, rest, tensor in listed if start is not None}
    for prefix in PREFIXES if depth else ():
        if inner := {name[len(prefix) :]: each for name, each in tensors.items() if name.startswith(prefix)}:
            yield from _variants(inner, depth - 1)


@cache
def _shapes_of(name: str, card: Card | None = None) -> dict[str, torch.Size]:
    """Those of the network, of which nothing is computed, as it is by itself or as the card says."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sizes that leave nothing, which will not fit
        network = build_backbone(name) if card is None else network_of(card)
    return {key: each.shape for key, each in network.state_dict().items()}


def _matching(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, torch.Size], classifier: str | Sequence[str] | None
) -> dict[str, Tensor] | None:
    """The tensors of the network with these shapes, without its classifier; None if it is another network. Some shapes
    may differ, for they can be adapted."""
    heads = [classifier] if isinstance(classifier, str) else classifier or ()
    tensors = {name: each for name, each in tensors.items() if name.rpartition(".")[0] not in heads}
    parts = {name.partition(".")[0] for name in wanted}
    for name, shape in wanted.items():
        if name not in tensors and not name.endswith("num_batches_tracked"):  # which older files lack
            return None
        if name in tensors and tensors[name].shape != shape and not _adaptable(name, tensors[name].shape, shape):
            return None
    if any(name not in wanted and name.partition(".")[0] in parts for name in tensors):
        return None
    return {name: tensors.get(name, torch.tensor(0)) for name in wanted}


def _adaptable(name: str, given: torch.Size, wanted: torch.Size) -> bool:
    if "pos_embed" in name:
        return len(given) == len(wanted) and given[-1] == wanted[-1]
    first = wanted[1:2] == (3,) and len(given) == len(wanted) == 4 and given[0] == wanted[0]
    return first and (name == "conv1.weight" or given[2:] == wanted[2:])


def _as_trained(card: Card, tensors: Mapping[str, Tensor]) -> Card:
    """The card with the stem, the channels and the image size that the tensors show. Raises a ValueError."""
    conv = tensors.get("conv1.weight")
    if conv is not None and card.backbone not in OWN and conv.shape[-1] == 3:
        card = replace(card, stem="small")
    position, patch = tensors.get("pos_embed"), tensors.get("patch_embed.proj.weight")
    if position is not None and patch is not None:
        side = math.isqrt(position.shape[1])
        card = replace(card, image_size=side * patch.shape[-1])
    first = conv if conv is not None else patch
    if first is not None and first.shape[1] != card.in_channels:
        count = first.shape[1]
        card = replace(card, mean=(sum(card.mean) / 3,) * count, std=(sum(card.std) / 3,) * count)
    return checked(card)


def _like(variants: list[dict[str, Tensor]]) -> dict[str, torch.Size]:
    return {name: each.shape for name, each in variants[-1].items()}


def initialise(encoder: Encoder, weights: Weights) -> None:
    """Puts the weights into the backbone of an encoder, adapted to its image size, its channels and its stem."""
    network, name = encoder.backbone, encoder.config.backbone
    card, config = weights.card, encoder.config
    if config.split != card.split:
        seen, asked = (_seen(split) for split in (card.split, config.split))
        raise UserError(f"--init {weights.name} holds {seen}, not {asked}: give a run with the same --views")
    for flag, here, there in (
        ("--backbone", name, card.backbone),
        ("--norm", once_trained(config.norm), card.norm),
    ):
        if here != there:
            raise UserError(f"--init {weights.name} holds a network with {flag} {there}, not {here}: make both agree")
    wanted = network.state_dict()
    given = dict(weights.tensors)
    if name not in OWN and any(
        "pos" in key and key in given and given[key].shape != wanted[key].shape for key in wanted
    ):
        given = _resized(given, encoder)
    fitted = {}
    for key, own in wanted.items():
        tensor = given.get(key)
        if tensor is not None and tensor.shape != own.shape and tensor.ndim == own.ndim == 4 and _first(key, wanted):
            tensor = _first_convolution(tensor, own.shape, weights.name)
        if tensor is None or tensor.shape != own.shape:
            was = "is absent" if tensor is None else f"is {tuple(tensor.shape)}"
            raise UserError(f"--init {weights.name} does not fit: {key} {was} and would have to be {tuple(own.shape)}")
        fitted[key] = tensor
    network.load_state_dict(fitted)


def _seen(split: str | None) -> str:
    return "one network for whole images" if split is None else f"one for each view of {split}"


def _first(key: str, wanted: Mapping[str, Tensor]) -> bool:
    """Whether it is the first convolution, which sees the image."""
    return key == next(name for name, each in wanted.items() if each.ndim == 4)


def _first_convolution(kernel: Tensor, wanted: torch.Size, name: str) -> Tensor:
    """The first kernel (F, c, k, k) for other channels, as timm adapts it, and of another size: a smaller kernel at a
    smaller stride sees the image as the larger one saw it enlarged, so it is averaged and keeps its sum."""
    from timm.models import adapt_input_conv

    if kernel.shape[1] != wanted[1]:
        if kernel.shape[1] != 3:
            raise UserError(
                f"--init {name} takes {kernel.shape[1]} channels, not {wanted[1]}: only weights for 3 can be adapted"
            )
        kernel = adapt_input_conv(wanted[1], kernel)
    if kernel.shape[2:] != wanted[2:]:
        rows, columns = (_shares(*sizes).to(kernel) for sizes in zip(kernel.shape[2:], wanted[2:], strict=True))
        kernel = rows @ kernel @ columns.T
    return kernel


def _shares(given: int, wanted: int) -> Tensor:
    """(wanted, given): which part of each old cell falls into each new one, where both cover the same length."""
    ends = torch.arange(given + 1) / given * wanted  # in new cells
    new = torch.arange(wanted)[:, None]
    inside = (torch.minimum(ends[1:], new + 1.0) - torch.maximum(ends[:-1], new.float())).clamp(min=0)
    return inside / (wanted / given)


def _resized(tensors: dict[str, Tensor], encoder: Encoder) -> dict[str, Tensor]:
    """With the positions of another image size, by timm, which knows how each of its networks keeps them."""
    import timm

    name, size = encoder.config.backbone, encoder.image_size
    whole = {"state_dict": tensors, "num_classes": 0, "classifier": None, "label_offset": None}
    try:
        with _quiet(TIMM):
            model: Any = timm.create_model(
                name, pretrained=True, num_classes=0, img_size=size, pretrained_cfg_overlay=whole
            )
    except (AssertionError, RuntimeError, TypeError, ValueError, LookupError) as error:
        raise UserError(
            f"the positions of {name} cannot be resized to --image-size {size}: take its own size"
        ) from error
    return dict(model.state_dict())
