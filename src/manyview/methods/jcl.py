"""JCL: infinitely many positive keys per query, through the closed-form bound on their joint loss (Algorithm 1)."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, final

from torch import Tensor

from manyview.bounds import NotNegative, Positive
from manyview.methods.base import MOCO_V2, QueueConfig, Queued, ViewBatch
from manyview.objectives import jcl, similarity


@dataclass(frozen=True)
class JCLConfig(QueueConfig):
    """Joint contrastive learning with infinite possibilities (Cai et al., NeurIPS 2020)."""

    temperature: Annotated[float, Positive] = 0.2
    """τ of the softmax."""
    keys: Annotated[int, Positive] = 5
    """M′, the keys per sample from which mean and covariance are estimated (the query is not counted)."""
    lam: Annotated[float, NotNegative] = 4.0
    """λ, the weight of the keys' covariance: how much diversity the infinitely many positives have."""
    lam_schedule: Literal["linear", "constant"] = "linear"
    """`linear`: λ grows linearly over the run, because the statistics are poor early on."""
    enqueue: Literal["mean", "first"] = "mean"
    """What enters the queue: the mean of a sample's keys, which is shorter than 1 (Algorithm 1), or its first key."""


@final
class JCL(Queued):
    name = "jcl"
    title = "JCL"
    Config = JCLConfig
    paper = replace(MOCO_V2, optim=replace(MOCO_V2.optim, batch_size=512, lr=0.06))
    on_small_images: ClassVar = {"temperature": 0.1}
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
