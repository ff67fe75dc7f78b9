"""Encoders: backbones by name, heads, a network for each view, the momentum copy, and the files that outlive a run."""

from manyview.encoders.backbones import build_backbone
from manyview.encoders.encoder import Encoder, EncoderConfig, Momentum, build_encoder, joined
from manyview.encoders.files import Card, Format, FrozenEncoder, export, load, random_like, save_backbone
from manyview.encoders.layers import find_layers, layer_features, with_layers
from manyview.encoders.norms import SplitBatchNorm
from manyview.encoders.towers import Towers

__all__ = [
    "Card",
    "Encoder",
    "EncoderConfig",
    "Format",
    "FrozenEncoder",
    "Momentum",
    "SplitBatchNorm",
    "Towers",
    "build_backbone",
    "build_encoder",
    "export",
    "find_layers",
    "joined",
    "layer_features",
    "load",
    "random_like",
    "save_backbone",
    "with_layers",
]
