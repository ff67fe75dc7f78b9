"""The loop: batches become views, views a loss, the loss a step. It names no method and keeps no files."""

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler, MultiStepLRScheduler
from timm.scheduler.scheduler import Scheduler
from torch import Tensor, nn

from manyview import counter, distributed
from manyview.config import OptimConfig, Precision
from manyview.data.loader import Batch
from manyview.methods.base import Method, ViewBatch
from manyview.views import Augment

__all__ = ["HALF", "NotFinite", "build_optimizer", "build_schedule", "train"]

HALF: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
_DROPOUT = 0xD809  # keeps these draws apart from all others of the same seed


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
    accumulate: int = 1,
    precision: Precision = "float32",
    scaler: torch.amp.GradScaler | None = None,
) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields (step, metrics) after each of the `batches`, which belong to a run of `steps` steps.

    A batch is worked on in `accumulate` equal parts whose gradients add up to its own. `scaler` is what float16 needs.
    Between two yields the state is whole: whoever iterates may save it, evaluate the encoder or stop.
    """
    method.train()
    scaler = scaler or torch.amp.GradScaler(device.type, enabled=False)
    source = iter(batches)
    asked = time.perf_counter()
    while (batch := next(source, None)) is not None:
        arrived = time.perf_counter()
        schedule.step_update(batch.step)
        # What draws from PyTorch's generators, such as dropout, depends on the place in the run and not on its past.
        torch.manual_seed(int(counter.bits(method.seed, _DROPOUT, batch.step, distributed.rank())))
        optimizer.zero_grad(set_to_none=True)
        parts = []
        for part, (images, index) in enumerate(
            zip(batch.images.chunk(accumulate), batch.index.chunk(accumulate), strict=True)
        ):
            # Planned on the host, which has to read the plan to know what is to be done.
            views = augment.apply(images.to(device, non_blocking=True), augment.plan(index, batch.epoch))
            index = index.to(device, non_blocking=True)
            if precision == "float64":
                views = views.double()
            with method.deferred_average() if part + 1 < accumulate else nullcontext():
                with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
                    metrics = method.step(ViewBatch(views, index, batch.step, steps, part))
                scaler.scale(metrics["loss"] / accumulate).backward()
            parts.append(torch.stack([value.detach().to(metrics["loss"].dtype) for value in metrics.values()]))
        values = dict(zip(metrics, distributed.mean(torch.stack(parts).mean(0)).tolist(), strict=True))
        if not math.isfinite(values["loss"]):
            raise NotFinite(values["loss"], batch.step, distributed.everyone(batch.index.tolist()))
        if clip_grad is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(trainable(method), clip_grad)
        scaler.step(optimizer)
        scaler.update()
        method.after_step()
        done = time.perf_counter()
        yield (
            batch.step,
            {
                **values,
                "lr": optimizer.param_groups[0]["lr"],
                "images_per_s": len(batch.index) * distributed.world_size() / (done - asked),
                "wait": (arrived - asked) / (done - asked),
            },
        )
        asked = time.perf_counter()


def trainable(module: nn.Module) -> list[Tensor]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def build_optimizer(method: Method, config: OptimConfig) -> torch.optim.Optimizer:
    scale = {"none": 1.0, "linear": config.batch_size / 256, "sqrt": math.sqrt(config.batch_size / 256)}[config.lr_rule]
    extra: dict[str, Any] = {"betas": (0.5, 0.999)} if config.optimizer == "adam" else {}
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        method,
        opt="momentum" if config.optimizer == "sgd" else config.optimizer,  # timm's "sgd" is Nesterov's
        lr=config.lr * scale,
        weight_decay=config.weight_decay,
        momentum=config.sgd_momentum,
        filter_bias_and_bn=config.optimizer in ("adamw", "lars"),
        **extra,
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
    return MultiStepLRScheduler(optimizer, decay_t=decays, decay_rate=config.decay, **common)
