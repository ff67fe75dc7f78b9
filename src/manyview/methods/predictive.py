"""Predictive learning, CMC's baseline (§3.1): a decoder predicts one view from another, pixel by pixel."""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders import Encoder
from manyview.errors import UserError
from manyview.methods.base import ViewBatch
from manyview.methods.decoders import Decoder, WithDecoders
from manyview.methods.view_graph import CMC_PAPER, GraphConfig, ViewGraph


@dataclass(frozen=True)
class PredictiveConfig(GraphConfig):
    """Regression from each view to the others, with an encoder and a decoder: CMC's baseline (Table 5)."""

    distance: Literal["l1", "l2"] = "l2"
    """What is minimised between a view and its prediction: absolute or squared differences of normalised pixels."""


@final
class Predictive(ViewGraph):
    name = "predictive"
    title = "Predictive learning"
    Config = PredictiveConfig
    paper = CMC_PAPER
    contrastive = False  # the head is not trained
    small_optim: ClassVar = {"optimizer": "adam", "lr": 0.003}  # squared differences diverge by SGD
    config: PredictiveConfig

    def __init__(self, config: PredictiveConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        if len(self.names) < 2:
            raise UserError(f"--views {config.views} leaves nothing to predict: name two or more")
        towers = encoder.towers
        self.decoders = nn.ModuleList(
            Decoder(towers.widths[a], len(towers.named[b].channels)) for a, b in self.directions
        )

    def learner(self) -> nn.Module:
        return WithDecoders(self.encoder.towers, self.decoders, self.directions)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        views, *predicted = self.embed(batch.crop(0))

        def scores(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            return predicted[self.directions.index((anchor, other))], views[other]

        return {"loss": self.along_graph(views, scores, self.difference, batch.index)}

    def difference(self, predicted: Tensor, view: Tensor, *, reduction: Literal["none"]) -> Tensor:
        """(N, c, h, w) twice -> (N,)."""
        distance = F.l1_loss if self.config.distance == "l1" else F.mse_loss
        return distance(predicted, view, reduction=reduction).flatten(1).mean(1)
