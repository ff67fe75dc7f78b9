"""CMC: the views of one image, such as its luminance and its colours, are told from those of other images."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from manyview import distributed
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import Encoder, EncoderConfig
from manyview.errors import UserError
from manyview.methods.base import Method, Paper, ViewBatch
from manyview.negatives import MemoryBank
from manyview.objectives import info_nce, mutual_information_bound, nce, normaliser, view_pairs
from manyview.views.colourspaces import SPLITS

__all__ = ["CMC", "CMCConfig", "directions", "split_encoder"]


@dataclass(frozen=True)
class CMCConfig:
    """Contrastive multiview coding with memory banks (Tian et al., ECCV 2020)."""

    views: str = "lab"
    """Colour space whose two views are contrasted: lab ({L, ab}), ydbdr ({Y, DbDr}), yiq, yuv, hsv, hed, rgb …"""
    contrast: Literal["softmax", "nce"] = "softmax"
    """(m + 1)-way classification, or noise-contrastive estimation of that over all samples (Eq. 9-11)."""
    temperature: float = 0.07
    """τ of the critic: 0.07 on ImageNet, 0.1 on STL-10."""
    draw: int = 16_384
    """m, the negatives drawn from a view's memory bank for each anchor; fewer than there are samples."""
    bank_momentum: float = 0.5
    """Share of a bank's entry that stays when its sample is seen again."""


class CMC(Method):
    name = "cmc"
    Config = CMCConfig
    paper = Paper(
        ViewConfig(augment="cmc"),
        EncoderConfig(head="linear"),
        OptimConfig(batch_size=256, lr=0.03, epochs=200, schedule="cosine"),
    )
    config: CMCConfig
    normalisers: Tensor

    @classmethod
    def view_count(cls, config: CMCConfig) -> int:
        return 1  # of which the encoder makes the views that are contrasted

    @classmethod
    def encoder_config(cls, config: CMCConfig, encoder: EncoderConfig) -> EncoderConfig:
        return split_encoder(config.views, encoder)

    def __init__(self, config: CMCConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        if config.draw >= samples:
            raise UserError(
                f"--draw {config.draw} is not fewer than the {samples} samples of --data: use --draw {samples - 1} or "
                "less"
            )
        if config.bank_momentum == 1:
            raise UserError("--bank-momentum 1 leaves the banks as they were drawn: use less, such as 0.5")
        self.samples = samples
        self.names, self.directions = directions(config.views)
        self.banks = nn.ModuleList(
            MemoryBank(samples, encoder.config.dim, momentum=config.bank_momentum, draw=config.draw) for _ in self.names
        )
        self.register_buffer("normalisers", torch.zeros(len(self.directions), dtype=torch.float64))  # Z₀ of each
        self.fresh: list[tuple[Tensor, Tensor]] = []  # views and sample numbers of this step, for the banks after it

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        together = self.embed(batch.views[0])  # (N, V·D), each view of length 1/√V
        views = dict(zip(self.names, (together * math.sqrt(len(self.names))).chunk(len(self.names), 1), strict=True))
        losses, means = [], []
        for direction, (anchor, other) in enumerate(self.directions):
            bank = self.bank(other)
            positives = bank.positives(views[anchor], batch.index)
            negatives = bank.similarity(
                views[anchor], batch.index, seed=self.seed, step=batch.step, direction=direction
            )
            losses.append(self.contrast(positives, negatives, direction))
            means.append(positives.detach().mean())
        self.fresh.append((torch.stack(list(views.values())).detach(), batch.index))
        metrics = {"loss": torch.stack(losses).sum(), "positive": torch.stack(means).mean()}
        if self.config.contrast == "softmax":
            metrics["information"] = mutual_information_bound(metrics["loss"].detach() / len(losses), self.config.draw)
        return metrics

    def bank(self, view: str) -> MemoryBank:
        bank = self.banks[self.names.index(view)]
        assert isinstance(bank, MemoryBank)
        return bank

    def contrast(self, positives: Tensor, negatives: Tensor, direction: int) -> Tensor:
        tau, z = self.config.temperature, self.normalisers[direction]
        if self.config.contrast == "softmax":
            return info_nce(positives, negatives, temperature=tau)
        if z == 0:  # the first batch
            z.copy_(distributed.mean(normaliser(positives, negatives, temperature=tau, n=self.samples)))
        return nce(positives, negatives, temperature=tau, n=self.samples, z=z)

    def after_step(self) -> None:
        views, index = zip(*self.fresh, strict=True)
        for name, keys in zip(self.names, torch.cat(views, 1), strict=True):
            self.bank(name).push(keys, torch.cat(index))
        self.fresh.clear()


def split_encoder(views: str, encoder: EncoderConfig) -> EncoderConfig:
    """With a network for each view of the colour space."""
    if views not in SPLITS:
        raise UserError(f"--views {views} is no colour space: choose one of {', '.join(SPLITS)}")
    return replace(encoder, split=views)


def directions(views: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The names of a colour space's views, and each pair of them both ways: the anchor, and the view that it meets."""
    names = list(SPLITS[views].views)
    pairs = view_pairs(names)
    return names, [*pairs, *((b, a) for a, b in pairs)]
