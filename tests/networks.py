"""Small encoders with statistics of their own, and images for them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyview.encoders import Encoder, EncoderConfig, build_encoder, save_backbone

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def encoder(size: int = 32, channels: int = 3, **changes: Any) -> Encoder:
    """An encoder that has seen a batch, so that its running statistics are not those of a fresh one."""
    torch.manual_seed(0)
    config = EncoderConfig(**{"backbone": "tiny", **changes})
    made = build_encoder(config, image_size=size, in_channels=channels)
    with torch.no_grad():
        for parameter in made.parameters():  # residual branches start at 0, where an error in them would not show
            parameter.add_(0.05 * torch.randn_like(parameter))
        made(torch.rand(8, channels, size, size))
    return made


def saved(path: Path, made: Encoder, size: int = 32) -> Path:
    save_backbone(path, made, image_size=size, mean=MEAN, std=STD)
    return path


def images(size: int = 32) -> Tensor:
    return torch.randint(0, 256, (4, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def normalised(x: Tensor) -> Tensor:
    return (x.float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
