"""What a run prints before its first step, and what it records of its environment."""

import platform
from dataclasses import asdict

import timm
import torch
from rich.console import Console
from rich.table import Table

from manyview import distributed
from manyview.config import AnyConfig
from manyview.data import Source
from manyview.data.subsets import counts_in_words
from manyview.methods.base import Method
from manyview.run.build import Training

LR_RULES = {"none": "", "linear": " × batch/256", "sqrt": " × √(batch/256)"}


def announce(kind: type[Method], config: AnyConfig, source: Source, training: Training, console: Console) -> None:
    """Prints the setup before the first step."""
    count = sum(parameter.numel() for parameter in training.method.encoder.parameters())
    table = Table(title=f"{kind.name} on {source.name}", title_justify="left", show_header=False, box=None)
    table.add_row("preset", f"{config.run.preset} (--preset)")
    table.add_row(
        "data",
        f"{len(source)} images, views of {config.views.image_size} px, augmentation {config.views.augment}, crops from "
        f"{training.augment.policy.scale[0]:.0%} of the area",
    )
    if source.missing:
        table.add_row("missing", source.missing_in_words)
    if config.data.imbalance != "none":
        counts = counts_in_words(source.class_counts)
        table.add_row("imbalance", f"{config.data.imbalance} (--imbalance), images per class: {counts}")
    table.add_row(
        "encoder", f"{config.encoder.backbone}, {count / 1e6:.2f} M parameters with its head, on {training.device}"
    )
    settings = ", ".join(f"{key.replace('_', '-')} {value}" for key, value in asdict(config.method).items())
    table.add_row(kind.name, settings)
    epochs, optim = training.steps / training.steps_per_epoch, config.optim
    table.add_row(
        "optimisation",
        f"{training.steps} steps of {optim.batch_size} samples ({epochs:.1f} epochs), {optim.optimizer}, "
        f"lr {optim.lr}{LR_RULES[optim.lr_rule]} {optim.schedule}",
    )
    if training.contrast is not None:
        table.add_row("contrast", f"measured on {len(training.contrast)} images of {training.contrast.name}")
    table.add_row("run", str(config.run.out))
    console.print(table)


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
