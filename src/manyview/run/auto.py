"""--preset auto: each setting that follows from the images, the method or the machine, with the reason for it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from manyview import distributed
from manyview.config import AnyConfig
from manyview.data import Source
from manyview.data.loader import processors, readers
from manyview.encoders import Card, EncoderConfig, build_encoder
from manyview.errors import UserError
from manyview.methods.base import Method
from manyview.run import adaptation, pace, presets
from manyview.run.choices import Choices
from manyview.run.device import pick_device

PHOTO_SIDE = 96  # of views without a GPU: `tiny` is made for them
PAPER_SIDE = 224
LARGE_GPU = 10e9  # bytes that train a ResNet-50
GPU_SHARE = 0.7  # of its memory, for activations
PART = 32  # samples that share batch statistics where batches are split, as on each of the papers' devices
FEWEST_SPLIT = 8  # samples of a batch that is split
YOUNG = 256  # keys in a queue that may hold more than an eighth of the samples
FEW = 8 * YOUNG
SHORT, LONG = 64_000, 800_000  # views seen in a run without a GPU, if the epochs allow
LONG_ON_GPU = 40_000_000
FEWEST_EPOCHS, MOST_EPOCHS, GPU_EPOCHS = 20, 400, 200


@dataclass(frozen=True)
class Machine:
    """What is there to compute with."""

    cores: int
    gpu: float | None = None  # bytes of its memory
    bf16: bool = False
    world: int = 1  # processes that train together

    @classmethod
    def here(cls, device: str) -> "Machine":
        found = pick_device(device)
        cores, world = processors(), distributed.world_size()
        if found.type == "cuda":
            memory = float(torch.cuda.get_device_properties(found).total_memory)
            return cls(cores, memory, torch.cuda.is_bf16_supported(including_emulation=False), world)
        return cls(cores, world=world)


def automatic(
    method: type[Method],
    asked: AnyConfig,
    given: Collection[str],
    source: Source,
    machine: Machine,
    card: Card | None = None,
) -> tuple[AnyConfig, Mapping[str, str]]:
    """Defaults for these images on this machine, and the reasons. `asked` has the values of the flags in `given`,
    `card` belongs to the weights that the run starts from."""
    if len(source) < 2:
        raise UserError(f"--data {asked.data.data} has a single image: there must be at least two to contrast")
    views = method.view_count(asked.method)
    photographs = source.median_side > presets.SMALL_SIDE
    large = photographs and machine.gpu is not None  # then it is as in the papers, as far as the images reach
    base = (
        presets.paper(method, asked.run, asked.data)
        if large
        else presets.small(method, asked.run, asked.data, source, views=views)
    )
    choices = Choices(base, asked, given)
    choose_network(choices, source, machine, card, photographs=photographs)
    choose_batch(choices, method, source, machine, views)
    choose_length(choices, source, views, large=large, slow=photographs or card is not None)
    if card is not None:
        adaptation.choose_training(choices, source, views)
    choose_negatives(choices, source, large=large)
    half = machine.gpu is not None and machine.bf16
    choices.choose(
        "optim", "precision", "bf16" if half else "float32", "half the memory" if half else "no GPU for less"
    )
    count = readers(source, asked.data.workers)
    processes = "1 process" if count == 1 else f"{count} processes"
    choices.choose("data", "workers", "auto", f"{processes} decode" if count else "nothing to decode")
    return choices.config, choices.reasons


def choose_network(choices: Choices, source: Source, machine: Machine, card: Card | None, *, photographs: bool) -> None:
    side = source.median_side
    if card is not None:
        adaptation.choose_network(choices, card, small=not photographs)
    if not photographs:
        if card is None:
            choices.choose("encoder", "backbone", "tiny", f"for images of {side} px")
        if "image_size" not in choices.reasons:
            choices.choose("views", "image_size", side, "that of the images")
        return
    if machine.gpu is None:
        if card is None:
            choices.choose("encoder", "backbone", "tiny", "there is no GPU; resnet18 takes three times as long")
        size, reason = PHOTO_SIDE, "there is no GPU"
        choices.config = replace(choices.config, views=replace(choices.config.views, min_crop=None))
    else:
        if card is None:
            choices.choose("encoder", "backbone", usual(machine), f"{machine.gpu / 1e9:.0f} GB on the GPU")
        size, reason = PAPER_SIDE, "as in the papers"
    if side < size:
        size, reason = side // 16 * 16, f"the images have {side} px"
    if "image_size" not in choices.reasons:
        choices.choose("views", "image_size", size, reason)


def usual(machine: Machine) -> str:
    """The network of most people, as far as the machine trains it."""
    return "resnet50" if (machine.gpu or 0) >= LARGE_GPU else "resnet18"


def choose_batch(choices: Choices, method: type[Method], source: Source, machine: Machine, views: int) -> None:
    n, base = len(source), choices.config.optim
    batch, reason = base.batch_size, "the method's, for one small machine" if machine.gpu is None else "the paper's"
    if n < 2 * batch:
        batch, reason = power_of_two(max(2, n // 2)), f"at most half of the {n:,} samples"
    queued = hasattr(choices.config.method, "queue_size")
    if machine.gpu is not None and "batch_size" not in choices.given:
        fits = (
            GPU_SHARE * machine.gpu / (activations(choices.config, method) * (1 if queued else views)) * machine.world
        )
        if fits < batch:
            batch, reason = power_of_two(max(2, int(fits))), f"what fits into {machine.gpu / 1e9:.0f} GB"
    shares = machine.world * choices.asked.optim.accumulate
    if batch % shares:
        batch, reason = max(1, batch // shares) * shares, f"{reason}, in {shares} equal parts"
    if choices.asked.optim.encoded_views is None:
        scaled = batch / base.batch_size
        batch = choices.choose("optim", "batch_size", batch, reason)
        if machine.gpu is not None and scaled < 1:
            choices.choose("optim", "lr", base.lr * scaled, "in proportion to the batch")
    else:  # which says it for what follows, too
        batch = choices.asked.optim.encoded_views // views
        choices.config = replace(choices.config, optim=replace(choices.config.optim, batch_size=batch))
    if method.small(n, views).bn_splits > 1:  # a batch that is normalised as a whole tells which key belongs to it
        own = batch // shares
        parts = max(2, own // PART) if own >= FEWEST_SPLIT else 1
        if own % parts or parts == 1:
            choices.choose("encoder", "bn_splits", 1, f"{own} samples are too few or too odd to be split")
        else:
            choices.choose("encoder", "bn_splits", parts, f"parts of {own // parts} samples do not betray their keys")


def choose_length(choices: Choices, source: Source, views: int, *, large: bool, slow: bool) -> None:
    """`slow`: a network that is too much for a processor and 20 epochs of many images."""
    n = len(source)
    if choices.asked.run.time is None and choices.asked.optim.max_steps is None:
        short, long = SHORT // views, LONG // views  # samples
        few, many = (GPU_EPOCHS, LONG_ON_GPU) if large else (FEWEST_EPOCHS, long if slow else n * FEWEST_EPOCHS)
        epochs = min(MOST_EPOCHS, max(few, -(-short // n)))
        epochs = max(1, min(epochs, many // n)) if epochs * n > max(many, short) else epochs
        choices.choose("optim", "epochs", epochs, f"{epochs * n:,} samples seen")
    batch = choices.config.optim.batch_size
    per_epoch = max(1, n // batch)
    steps = choices.asked.optim.max_steps or choices.config.optim.epochs * per_epoch
    choices.choose("run", "checkpoint_every", pace.saves_every(steps), "steps; a crash costs at most these")
    every = pace.contrast_every(steps, per_epoch, batch * views, n)
    if choices.asked.run.contrast_every:
        choices.choose("run", "contrast_every", every, f"epochs; looks take less than {pace.LOOKS:.0%} of the time")


def choose_negatives(choices: Choices, source: Source, *, large: bool) -> None:
    n, config = len(source), choices.config.method
    if hasattr(config, "queue_size"):
        most = config.queue_size if large else 4096
        size = min(most, max(1, n // 8, min(n // 2, YOUNG)))
        reason = {most: "as many as help"}.get(size, f"{size / n:.0%} of the samples, so that keys are young")
        choices.choose("method", "queue_size", size, reason)
        if n < FEW:
            choices.choose("method", "mask_own", True, "few samples meet their own keys often")
        steps = choices.asked.optim.max_steps or choices.config.optim.epochs * n // choices.config.optim.batch_size
        young = not large or steps < 20_000
        choices.choose("method", "momentum", 0.99 if young else 0.999, "short run" if young else "long run")
    if hasattr(config, "draw"):
        draw = max(1, min(config.draw if large else 4096, n // 2))
        choices.choose("method", "draw", draw, "at most half of the samples")


def activations(config: AnyConfig, method: type[Method]) -> float:
    """Bytes that one view leaves for the backward pass: what all layers put out, counted without computing it."""
    encoder: EncoderConfig = method.encoder_config(config.method, config.encoder)
    size, channels, total = config.views.image_size, config.data.channels, 0
    with torch.device("meta"):
        network = build_encoder(replace(encoder, split=None), image_size=size, in_channels=channels)

        def count(module: nn.Module, _: Any, output: Any) -> None:
            nonlocal total
            if not list(module.children()) and isinstance(output, torch.Tensor):
                total += output.numel()

        for module in network.modules():
            module.register_forward_hook(count)
        network(torch.zeros(2, channels, size, size))
    return total / 2 * 4


def power_of_two(most: int) -> int:
    return 1 << (most.bit_length() - 1)
