"""Encoders: backbones by name, heads, a network per view, the momentum encoder, and encoder files."""

from manyview.encoders.backbones import build_backbone
from manyview.encoders.encoder import Encoder, EncoderConfig, Momentum, build_encoder, joined
from manyview.encoders.export import export
from manyview.encoders.features import Card, FrozenEncoder, MapShape, TrainableEncoder
from manyview.encoders.files import load, random_like, save_backbone, trainable
from manyview.encoders.layers import layer_features, with_layers
from manyview.encoders.norms import SplitBatchNorm
from manyview.encoders.towers import Towers

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
    "build_backbone",
    "build_encoder",
    "export",
    "joined",
    "layer_features",
    "load",
    "random_like",
    "save_backbone",
    "trainable",
    "with_layers",
]
