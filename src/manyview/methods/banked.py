"""The frame of CMC with memory banks: an anchor of one view meets the bank of the other."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from manyview import distributed
from manyview.bounds import Positive, Share
from manyview.config import OptimConfig
from manyview.encoders import Encoder
from manyview.errors import UserError
from manyview.methods.base import Chance, CMCSetup, Setup, ViewBatch
from manyview.methods.jigsaw import Branched, BranchedConfig
from manyview.methods.view_graph import Seen, ways
from manyview.negatives import MemoryBank
from manyview.objectives import info_nce, nce, normaliser
from manyview.objectives.multiview import Scores


@dataclass(frozen=True)
class BankConfig(BranchedConfig):
    contrast: Literal["softmax", "nce"] = "softmax"
    """(m + 1)-way classification, or noise-contrastive estimation of that over all samples (Eq. 9-11)."""
    temperature: Annotated[float, Positive] = 0.07
    """τ of the critic: 0.07 on ImageNet, 0.1 on STL-10."""
    draw: Annotated[int, Positive] = 16_384
    """m, the number of negatives drawn from the memory bank for each anchor; fewer than samples."""
    bank_momentum: Annotated[float, Share] = 0.5
    """Momentum of the entries of the memory banks."""


class Banked(Branched):
    """A method of this frame is a configuration: which views, and whether jigsaws of them too."""

    config: BankConfig
    normalisers: Tensor

    @classmethod
    def view_count(cls, config: BankConfig) -> int:
        return 2 if config.jigsaw else 1  # crops, of which the encoder makes the views that are contrasted

    @classmethod
    def chance(cls, config: BankConfig, batch: int) -> Chance | None:
        if config.contrast == "nce":
            return None
        return Chance(config.draw + 1, terms=ways(config))

    @classmethod
    def small(cls, samples: int, views: int) -> Setup:
        """A bank starts with random entries, which push the views of one sample apart. Adam recovers from this in a few
        hundred steps, SGD does not."""
        own = {"draw": max(1, min(4096, samples // 2)), **cls.on_small_images}
        return Setup(own, OptimConfig(optimizer="adam", lr=0.003, batch_size=min(128, samples)))

    @classmethod
    def in_cmc_setup(cls, setup: CMCSetup) -> Setup:
        own: dict[CMCSetup, dict[str, Any]] = {
            "paper-alexnet": {"contrast": "nce", "draw": 4096},  # D.2
            "paper-stl10": {"contrast": "nce", "temperature": 0.1},
            "paper-nyu": {},
        }
        return replace(super().in_cmc_setup(setup), method=own[setup])

    def __init__(self, config: BankConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        if config.draw >= samples:
            raise UserError(
                f"--draw {config.draw} is not fewer than the {samples} samples of --data: use --draw {samples - 1} or "
                "less"
            )
        if config.bank_momentum == 1:
            raise UserError("--bank-momentum 1 leaves the banks as they were drawn: use less, such as 0.5")
        self.samples = samples
        self.banks = nn.ModuleDict(
            {
                name: MemoryBank(samples, encoder.dim, momentum=config.bank_momentum, draw=config.draw)
                for name in self.names
            }
        )
        branches = 2 if config.jigsaw else 1
        self.register_buffer("normalisers", torch.zeros(branches * len(self.directions), dtype=torch.float64))  # Z₀
        self.estimated: set[int] = set()  # whose Z₀ is known
        self.fresh: list[tuple[dict[str, Tensor], Tensor]] = []  # keys by view, and sample numbers, for the banks

    def know_groups(self, groups: Tensor) -> None:
        super().know_groups(groups)
        for name in self.names:
            self.bank(name).know_groups(groups)

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        losses, seen = [], Seen(softmax=self.config.contrast == "softmax")
        for branch, (share, views) in enumerate(self.branches(batch)):
            if branch == 0:
                self.fresh.append(({name: view.detach() for name, view in views.items()}, batch.index))
            number = {way: branch * len(self.directions) + i for i, way in enumerate(self.directions)}
            contrast = {way: partial(self.contrast, number=number[way]) for way in self.directions}
            losses.append(
                share * self.along_graph(views, self.scores(views, batch, number), contrast, batch.index, seen)
            )
        return {"loss": torch.stack(losses).sum(), **seen.metrics()}

    def scores(self, views: Mapping[str, Tensor], batch: ViewBatch, number: Mapping[tuple[str, str], int]) -> Scores:
        """Of anchors against the bank of the view that they meet."""

        def against(anchor: str, other: str) -> tuple[Tensor, Tensor]:
            bank, query, index = self.bank(other), views[anchor], batch.index
            negatives = bank.similarity(
                query, index, seed=self.seed, step=batch.step, direction=number[anchor, other],
                there=self.presence.there(other),
            )  # fmt: skip
            return bank.positives(query, index), negatives

        return against

    def bank(self, view: str) -> MemoryBank:
        bank = self.banks[view]
        assert isinstance(bank, MemoryBank)
        return bank

    def contrast(self, positives: Tensor, negatives: Tensor, *, number: int, reduction: Literal["none"]) -> Tensor:
        tau, z = self.config.temperature, self.normalisers[number]
        if self.config.contrast == "softmax":
            return info_nce(positives, negatives, temperature=tau, reduction=reduction)
        if number not in self.estimated and z != 0:  # asked once: each question waits for the device
            self.estimated.add(number)
        if (
            number not in self.estimated
        ):  # the first batch, of which ranks may see unequal parts where views are missing
            estimate = normaliser(positives, negatives, temperature=tau, n=self.samples)
            seen = positives.numel() + negatives.isfinite().sum().to(estimate)
            total, seen = distributed.mean(torch.stack((estimate.nan_to_num(0.0) * seen, seen)))
            z.copy_(total / seen.clamp_min(1e-9))
        return nce(positives, negatives, temperature=tau, n=self.samples, z=z, reduction=reduction)

    def after_step(self) -> None:
        parts, numbers = zip(*self.fresh, strict=True)
        index = torch.cat(numbers)
        present = self.presence.of(index)
        for name in self.names:
            keys = torch.cat([part[name] for part in parts])
            self.bank(name).push(keys, index, present=None if present is None else present[name])
        self.fresh.clear()
