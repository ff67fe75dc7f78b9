"""The loop: batches become views, views a loss, the loss a step. It names no method and keeps no files."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler, MultiStepLRScheduler
from timm.scheduler.scheduler import Scheduler
from torch import Tensor, nn

from manyview.config import OptimConfig
from manyview.data.loader import Batch
from manyview.methods.base import Method, ViewBatch
from manyview.views import Augment

__all__ = ["NotFinite", "build_optimizer", "build_schedule", "train"]


class NotFinite(ArithmeticError):
    """The loss became NaN or infinite; the weights are still those before the step."""

    def __init__(self, loss: float, step: int, index: list[int]) -> None:
        super().__init__(f"the loss is {loss} in step {step}")
        self.loss, self.step, self.index = loss, step, index


def train(
    method: Method,
    batches: Iterable[Batch],
    augment: Augment,
    optimizer: torch.optim.Optimizer,
    schedule: Scheduler,
    *,
    steps: int,
    device: torch.device,
    clip_grad: float | None = None,
) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields (step, metrics) after each of the `batches`, which belong to a run of `steps` steps.

    Between two yields the state is whole: whoever iterates may save it, evaluate the encoder or stop.
    """
    method.train()
    source = iter(batches)
    asked = time.perf_counter()
    while (batch := next(source, None)) is not None:
        arrived = time.perf_counter()
        schedule.step_update(batch.step)
        index = batch.index.to(device, non_blocking=True)
        views = augment.apply(batch.images.to(device, non_blocking=True), augment.plan(index, batch.epoch))
        metrics = method.step(ViewBatch(views, index, batch.step, steps))
        loss = metrics["loss"]
        values = dict(zip(metrics, torch.stack([v.detach().float() for v in metrics.values()]).tolist(), strict=True))
        if not math.isfinite(values["loss"]):
            raise NotFinite(values["loss"], batch.step, batch.index.tolist())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if clip_grad is not None:
            nn.utils.clip_grad_norm_(trainable(method), clip_grad)
        optimizer.step()
        method.after_step()
        done = time.perf_counter()
        yield (
            batch.step,
            {
                **values,
                "lr": optimizer.param_groups[0]["lr"],
                "images_per_s": len(index) / (done - asked),
                "wait": (arrived - asked) / (done - asked),
            },
        )
        asked = time.perf_counter()


def trainable(module: nn.Module) -> list[Tensor]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def build_optimizer(method: Method, config: OptimConfig) -> torch.optim.Optimizer:
    scale = {"none": 1.0, "linear": config.batch_size / 256, "sqrt": math.sqrt(config.batch_size / 256)}[config.lr_rule]
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        method,
        opt="momentum" if config.optimizer == "sgd" else config.optimizer,  # timm's "sgd" is Nesterov's
        lr=config.lr * scale,
        weight_decay=config.weight_decay,
        momentum=config.sgd_momentum,
        filter_bias_and_bn=config.optimizer != "sgd",
    )
    return optimizer


def build_schedule(
    optimizer: torch.optim.Optimizer, config: OptimConfig, *, steps: int, steps_per_epoch: int
) -> Scheduler:
    warmup = round(config.warmup_epochs * steps_per_epoch)
    common: dict[str, Any] = {"warmup_t": warmup, "warmup_lr_init": 0.0, "t_in_epochs": False}
    if config.schedule == "cosine":
        return CosineLRScheduler(optimizer, t_initial=steps, **common)
    milestones = config.milestones if config.schedule == "step" else ()
    decays = [round(m * steps) + 1 for m in milestones]  # timm looks one step ahead
    return MultiStepLRScheduler(optimizer, decay_t=decays, decay_rate=0.1, **common)
