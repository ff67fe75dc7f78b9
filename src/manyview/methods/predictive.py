"""Predictive learning, CMC's rival (§3.1): a decoder makes one view of another, pixel by pixel."""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders import Encoder, Towers
from manyview.errors import UserError
from manyview.methods.base import ViewBatch
from manyview.methods.cmc import CMC
from manyview.methods.view_graph import GraphConfig, ViewGraph
from manyview.precision import at_least_float32

__all__ = ["Predictive", "PredictiveConfig"]

START, WIDEST = 4, 256  # side and channels of the map that a decoder begins with


@dataclass(frozen=True)
class PredictiveConfig(GraphConfig):
    """Regression from each view to the others, with an encoder and a decoder: what CMC compares with (Table 5)."""

    distance: Literal["l1", "l2"] = "l2"
    """What is minimised between a view and its prediction: absolute or squared differences of normalised pixels."""


class Predictive(ViewGraph):
    name = "predictive"
    title = "Predictive learning"
    Config = PredictiveConfig
    paper = CMC.paper
    watchable = False  # the head is never asked
    config: PredictiveConfig

    @classmethod
    def view_count(cls, config: PredictiveConfig) -> int:
        return 1

    def __init__(self, config: PredictiveConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        if len(self.names) < 2:
            raise UserError(f"--views {config.views} leaves nothing to predict: name two or more")
        towers = encoder.backbone
        assert isinstance(towers, Towers)
        widths, channels = (dict(zip(self.names, each, strict=True)) for each in (towers.widths, towers.channels))
        self.decoders = nn.ModuleList(Decoder(widths[a], channels[b]) for a, b in self.directions)

    def learner(self) -> nn.Module:
        towers = self.encoder.backbone
        assert isinstance(towers, Towers)
        return WithDecoders(towers, self.decoders, self.directions)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        views, *predicted = self.embed(batch.views[0])

        def scores(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            return predicted[self.directions.index((anchor, other))], views[other]

        return {"loss": self.along_graph(views, scores, self.difference, batch.index)}

    def difference(self, predicted: Tensor, view: Tensor, *, reduction: Literal["none"]) -> Tensor:
        """(N, c, h, w) twice -> (N,)."""
        distance = F.l1_loss if self.config.distance == "l1" else F.mse_loss
        return distance(predicted, view, reduction=reduction).flatten(1).mean(1)


class Decoder(nn.Module):
    """Features (N, F) to a view (N, c, size, size): maps that double their sides, the last one brought to the size."""

    def __init__(self, features: int, channels: int) -> None:
        super().__init__()
        self.start = nn.Linear(features, WIDEST * START**2)
        self.widen = nn.ModuleList(
            nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.ReLU(inplace=True))
            for inner, outer in ((WIDEST, 128), (128, 64), (64, 32))
        )
        self.end = nn.Conv2d(32, channels, 3, padding=1)

    def forward(self, features: Tensor, size: int) -> Tensor:
        x = self.start(features).unflatten(1, (WIDEST, START, START))
        for block in self.widen:
            x = block(F.interpolate(x, scale_factor=2.0))
        return at_least_float32(self.end(F.interpolate(x, size=(size, size), mode="bilinear")))


class WithDecoders(nn.Module):
    """The networks of an encoder and the decoders behind them, in one call: the views, and what was made of them in
    each direction."""

    def __init__(self, towers: Towers, decoders: nn.ModuleList, directions: list[tuple[str, str]]) -> None:
        super().__init__()
        self.towers, self.decoders, self.directions = towers, decoders, directions

    def forward(self, samples: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        views = self.towers.views(samples)
        features = {view: self.towers.networks[view](images) for view, images in views.items()}
        size = samples.shape[-1]
        return views, *(
            decoder(features[a], size) for decoder, (a, _) in zip(self.decoders, self.directions, strict=True)
        )
