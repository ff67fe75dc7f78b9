"""MoCo v2: MoCo with an MLP head, stronger views, a warmer softmax and a cosine schedule."""

from dataclasses import dataclass

from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import EncoderConfig
from manyview.methods.base import Paper
from manyview.methods.moco_v1 import MoCoV1, MoCoV1Config

__all__ = ["MoCoV2", "MoCoV2Config"]


@dataclass(frozen=True)
class MoCoV2Config(MoCoV1Config):
    """Improved baselines with momentum contrast (Chen et al., 2020)."""

    temperature: float = 0.2
    """τ of the softmax."""


class MoCoV2(MoCoV1):
    name = "moco-v2"
    title = "MoCo v2"
    Config = MoCoV2Config
    paper = Paper(
        ViewConfig(augment="moco-v2"),
        EncoderConfig(head="mlp"),
        OptimConfig(batch_size=256, lr=0.03, epochs=200, schedule="cosine"),
    )
