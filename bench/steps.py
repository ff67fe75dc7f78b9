"""What every training here is set up with, and the least that a step must do."""

import torch
from torch import Tensor

from manyview.config import OptimConfig
from manyview.cost.steps import Steps
from manyview.encoders import EncoderConfig, Momentum, build_encoder

BATCH, KEYS, SIZE = 256, 5, 32
ENCODER = EncoderConfig(backbone="tiny")
OPTIM = OptimConfig(batch_size=BATCH)


def bare_loop(views: Tensor) -> Steps:
    """Nothing but the passes that a step with these views (1 + M′, N, 3, h, w) cannot do without: the query forward and
    backward, SGD, and all keys forward."""
    torch.manual_seed(0)
    encoder = build_encoder(ENCODER)
    keys = Momentum(encoder).encoder
    optimizer = torch.optim.SGD(
        encoder.parameters(), OPTIM.lr, momentum=OPTIM.sgd_momentum, weight_decay=OPTIM.weight_decay
    )
    direction = torch.randn(views.shape[1], encoder.dim)
    while True:
        (encoder(views[0]) * direction).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            keys(views[1:].flatten(0, 1))
        yield None
