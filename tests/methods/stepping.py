"""What tests of single steps share: a small method in float64, a batch of views, and encoders that have moved apart."""

from typing import Any

import torch
from torch import Tensor

from manyview.encoders import EncoderConfig, build_encoder
from manyview.methods.base import Method, ViewBatch

N, QUEUE = 4, 16


def make(kind: type[Method], config: Any) -> Any:
    torch.manual_seed(0)
    # Group norm: a sample's embedding must not depend on who else is in a pass, so that loops can be compared.
    encoder = build_encoder(kind.encoder_config(config, EncoderConfig(backbone="tiny", norm="group", dim=8)))
    return kind(config, encoder, samples=100, seed=0).double()


def batch(views: int, step: int = 0, steps: int = 10) -> ViewBatch:
    images = torch.randn(views, N, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
    return ViewBatch({"image": images}, torch.arange(N) + N * step, step, steps)


def value(x: Tensor) -> float:
    return float(x.detach())


def moved(method: Any) -> Any:
    """Sets key and query encoder apart, as some steps of training would."""
    with torch.no_grad():
        for parameter in method.encoder.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return method
