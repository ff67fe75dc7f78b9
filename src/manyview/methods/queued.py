"""What methods with a momentum encoder and a queue share."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from manyview.encoders import Encoder, Momentum
from manyview.errors import UserError
from manyview.methods.base import Method, ViewBatch
from manyview.negatives import Queue

__all__ = ["QueueConfig", "Queued"]


@dataclass(frozen=True)
class QueueConfig:
    queue_size: int = 65_536
    """Negatives kept from earlier batches; at most the number of samples."""
    momentum: float = 0.999
    """Share of the key encoder that stays in each step; the rest follows the query encoder."""
    queue_start: Literal["random", "empty"] = "random"
    """Random unit vectors as negatives until real keys replace them, or slots masked until they are filled."""
    mask_own: bool = False
    """Never take a sample's own old keys as its negatives."""
    key_passes: int = 1
    """Batches in which the keys of a step are encoded, with their own batch statistics: more of them need less memory
    (with as many as there are keys per sample, one is as large as the batch of queries)."""


class Queued(Method):
    """A `step` leaves in `fresh` the keys that enter the queue after it."""

    config: Any

    def __init__(self, config: QueueConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        check_queue(config.queue_size, samples)
        self.keys = Momentum(encoder, config.momentum, passes=config.key_passes)
        self.queue = Queue(config.queue_size, encoder.dim, start=config.queue_start, mask_own=config.mask_own)
        self.fresh: list[tuple[Tensor, Tensor]] = []  # keys and sample numbers of this step, enqueued after it

    def encode_keys(self, views: Tensor, batch: ViewBatch) -> Tensor:
        """The keys (N, M, D) of some views (M, N, 3, h, w) of the batch, without gradient."""
        return self.keys.encode(views, seed=self.seed, step=batch.step, part=batch.part)

    def after_step(self) -> None:
        self.keys.update(self.encoder)
        keys, index = zip(*self.fresh, strict=True)
        self.queue.push(torch.cat(keys), torch.cat(index))
        self.fresh.clear()


def check_queue(size: int, samples: int) -> None:
    """A queue longer than the set would hold a sample's own old keys as its negatives, in every step."""
    if size > samples:
        raise UserError(
            f"--queue-size {size} exceeds the {samples} samples of --data, so that every sample would meet its own "
            f"old keys as negatives: use --queue-size {max(1, samples // 2)} or less"
        )
