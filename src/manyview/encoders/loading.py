"""Encoders from weights: frozen, to be trained on, or the same with random weights."""

import copy
import sys
from pathlib import Path

import torch
from torch import nn

from manyview import distributed
from manyview.encoders.features import Card, FrozenEncoder, TrainableEncoder, network_of
from manyview.encoders.files import fill
from manyview.encoders.towers import Towers
from manyview.encoders.weights import Weights, open_weights
from manyview.errors import UserError


def load(spec: str | Path) -> FrozenEncoder:
    """The encoder of a run, finished or not, of an encoder file, of timm:NAME, or of a file of another program."""
    return as_frozen(announced(open_weights(spec)))


def announced(weights: Weights) -> Weights:
    """Tells the user, once for all ranks, what he should know of the weights."""
    if weights.remark and distributed.rank() == 0:
        print(weights.remark, file=sys.stderr)
    return weights


def as_frozen(weights: Weights) -> FrozenEncoder:
    """The encoder of these weights."""
    try:
        backbone = _fresh(weights.card, seed=0)
    except UserError as error:
        raise UserError(f"{weights.name} holds no usable encoder: {error}") from error
    fill(backbone, weights.tensors, weights.name, weights.card.backbone)
    return FrozenEncoder(backbone, weights.card)


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
        return network_of(card)
