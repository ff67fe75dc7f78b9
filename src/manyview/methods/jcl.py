"""JCL: infinitely many positive keys per query, through the closed-form bound on their joint loss (Algorithm 1)."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from manyview.methods.base import ViewBatch
from manyview.methods.moco_v2 import MoCoV2, MoCoV2Config
from manyview.objectives import jcl, similarity

__all__ = ["JCL", "JCLConfig"]


@dataclass(frozen=True)
class JCLConfig(MoCoV2Config):
    """Joint contrastive learning with infinite possibilities (Cai et al., NeurIPS 2020)."""

    keys: int = 5
    """M′, the keys per sample from which mean and covariance are estimated (the query is not counted)."""
    lam: float = 4.0
    """λ, the weight of the keys' covariance: how much diversity the infinitely many positives have."""
    lam_schedule: Literal["linear", "constant"] = "linear"
    """λ grows linearly over the run, as the statistics say little early on, or is constant."""
    enqueue: Literal["mean", "first"] = "mean"
    """What becomes a negative of later queries: the mean of a sample's keys, as in Algorithm 1, which is shorter than
    1, or its first key."""


class JCL(MoCoV2):
    name = "jcl"
    title = "JCL"
    Config = JCLConfig
    paper = replace(MoCoV2.paper, optim=replace(MoCoV2.paper.optim, batch_size=512, lr=0.06))
    config: JCLConfig

    @classmethod
    def view_count(cls, config: JCLConfig) -> int:
        return 1 + config.keys

    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        lam = self.config.lam * (batch.progress if self.config.lam_schedule == "linear" else 1.0)
        q = self.embed(batch.images[0])  # (N, D)
        k = self.encode_keys(batch.images[1:], batch)  # (N, M′, D), no gradient
        positives = similarity(q, k)
        negatives = self.queue.similarity(q, batch.index)
        loss = jcl(positives, negatives, temperature=self.config.temperature, lam=lam)
        enqueued = k.mean(1) if self.config.enqueue == "mean" else k[:, 0]  # Algorithm 1 does not normalise the mean
        self.fresh.append((enqueued, batch.index))
        spread = positives.detach().var(1, correction=0).mean().sqrt()
        return {"loss": loss, "positive": positives.detach().mean(), "spread": spread, "lam": loss.new_tensor(lam)}
