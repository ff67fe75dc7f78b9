"""What a run prints before its first step, and what it records of its environment."""

import platform
from collections.abc import Mapping
from dataclasses import asdict

import timm
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyview import distributed
from manyview.arguments import written
from manyview.config import AnyConfig
from manyview.data import Source
from manyview.data.subsets import counts_in_words
from manyview.fields import RGB
from manyview.methods.base import Method
from manyview.run import pace
from manyview.run.build import Training
from manyview.run.duration import in_words
from manyview.run.trial import Trial, disk
from manyview.views.policies import RGB_ALONE

LR_RULES = {"none": "", "linear": " × batch/256", "sqrt": " × √(batch/256)"}


def announce(
    kind: type[Method],
    config: AnyConfig,
    source: Source,
    training: Training,
    console: Console,
    reasons: Mapping[str, str],
    trial: Trial | None,
) -> None:
    """Prints the setup before the first step: what was chosen and why, and what the run will take."""
    count = sum(parameter.numel() for parameter in training.method.encoder.parameters())
    table = Table(title=f"{kind.name} on {source.name}", title_justify="left", show_header=False, box=None)
    table.add_column(no_wrap=True)
    about = f"{len(source):,} images{stored_as(source)}, the shorter side of a typical one has {source.median_side} px"
    table.add_row("data", ", ".join(filter(None, (about, source.order_in_words))))
    if source.missing:
        table.add_row("missing", source.missing_in_words)
    if config.data.imbalance != "none":
        counts = counts_in_words(source.class_counts)
        table.add_row("imbalance", f"{config.data.imbalance} (--imbalance), images per class: {counts}")
    table.add_row(
        "views",
        f"{config.views.image_size} px, augmentation {config.views.augment}, crops from "
        f"{training.augment.policy.scale[0]:.0%} of the area{left_out(config)}",
    )
    table.add_row(
        "encoder", f"{config.encoder.backbone}, {count / 1e6:.2f} M parameters with its head, on {training.device}"
    )
    own = {key: value for key, value in asdict(config.method).items() if key not in reasons and value is not None}
    told = (f"{key.replace('_', '-')} {written(value)}" for key, value in own.items())
    table.add_row(kind.name, ", ".join(told))
    epochs, optim = training.steps / training.steps_per_epoch, config.optim
    table.add_row(
        "optimisation",
        f"{training.steps:,} steps of {optim.batch_size} samples ({epochs:.3g} epochs), {optim.optimizer}, "
        f"lr {optim.lr:g}{LR_RULES[optim.lr_rule]} {optim.schedule}",
    )
    if training.contrast is not None:
        table.add_row("contrast", f"measured on {len(training.contrast)} images of {training.contrast.name}")
    if trial is not None:
        expected = trial.total(
            training.steps, pace.looked_at(config, training.steps, training.steps_per_epoch, len(source))
        )
        table.add_row("time", f"about {in_words(expected)}; {trial.step:.2g} s a step, measured just now")
    table.add_row("disk", f"about {disk(config, training) / 1e6:,.0f} MB in {config.run.out}")
    table.add_row("preset", f"{config.run.preset} (--preset)")
    if reasons:
        console.print(chosen(config, reasons))
    console.print(table)


def stored_as(source: Source) -> str:
    """How images differ from RGB of 8 bits, if they do."""
    if source.pixels == RGB:
        return ""
    channels, deep = source.pixels
    return f" of {channels} {'channel' if channels == 1 else 'channels'} and {16 if deep else 8} bits"


def left_out(config: AnyConfig) -> str:
    """What an augmentation does not do to images that are not RGB."""
    return f", without {', '.join(RGB_ALONE)} (--channels {config.data.channels})" if config.data.channels != 3 else ""


def chosen(config: AnyConfig, reasons: Mapping[str, str]) -> Table:
    """The settings that follow the images and the machine."""
    table = Table("chosen", "", "because", title_justify="left", box=None)
    values = {name: value for group in vars(config).values() for name, value in vars(group).items()}
    for name, reason in reasons.items():
        value = values[name]
        text = f"{value:,}" if type(value) is int else written(value)
        table.add_row(f"--{name.replace('_', '-')}", text, Text(reason, "dim"))
    return table


def environment(device: torch.device) -> dict[str, str | int]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "timm": timm.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "processes": distributed.world_size(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
    }
