"""Encoders: backbones by name, heads, a network per view, the momentum encoder, and encoder files."""

from manyview.encoders.backbones import build_backbone
from manyview.encoders.encoder import Encoder, EncoderConfig, Momentum, build_encoder, joined
from manyview.encoders.features import Card, FrozenEncoder, MapShape, TrainableEncoder
from manyview.encoders.files import save_backbone
from manyview.encoders.layers import layer_features, with_layers
from manyview.encoders.loading import announced, as_frozen, load, random_like, trainable
from manyview.encoders.norms import SplitBatchNorm
from manyview.encoders.towers import Towers
from manyview.encoders.weights import Weights, initialise, open_weights

__all__ = [
    "Card",
    "Encoder",
    "EncoderConfig",
    "FrozenEncoder",
    "MapShape",
    "Momentum",
    "SplitBatchNorm",
    "Towers",
    "TrainableEncoder",
    "Weights",
    "announced",
    "as_frozen",
    "build_backbone",
    "build_encoder",
    "initialise",
    "joined",
    "layer_features",
    "load",
    "open_weights",
    "random_like",
    "save_backbone",
    "trainable",
    "with_layers",
]
