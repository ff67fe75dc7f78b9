"""The training loop: batch, views, loss, optimizer step. It names no method and writes no files."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from timm.optim import create_optimizer_v2, param_groups_layer_decay
from timm.scheduler import CosineLRScheduler, MultiStepLRScheduler
from timm.scheduler.scheduler import Scheduler
from torch import Tensor, nn

from manyview import counter, distributed
from manyview.config import OptimConfig, Precision
from manyview.data.loader import Batch
from manyview.methods.base import Method, ViewBatch
from manyview.views import Augment

HALF: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
_DROPOUT = 0xD809  # keeps these draws apart from all others of the same seed
_FLAGS = 3  # behind the metrics of a step: bad gradient, unreadable images, asked to stop


class NotFinite(ArithmeticError):
    """The loss or its gradient became NaN or infinite; the weights are still those before the step."""

    def __init__(self, loss: float, step: int, index: list[int]) -> None:
        what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
        super().__init__(f"{what} in step {step}")
        self.loss, self.step, self.index = loss, step, index


@dataclass(frozen=True)
class Taken:
    """A step that was taken. Its numbers stay on the device until `read` asks for them, which waits for the device."""

    step: int
    index: Tensor  # (N,) samples of this rank
    unreadable: tuple[tuple[int, str], ...]  # samples of this rank that others stood in for, and why
    names: tuple[str, ...]
    values: Tensor  # of the metrics and the flags, the mean over the ranks
    lr: float
    began: float  # by the host's clock, as are the next two
    arrived: float  # when its batch did
    ended: float = math.nan

    def check(self, values: Sequence[float]) -> None:
        """Raises NotFinite, on all ranks alike, for the loss or the gradient. `values` are the step's, on the host."""
        loss, bad = values[0], values[-_FLAGS]
        if bad > 0 or not math.isfinite(loss):
            raise NotFinite(loss, self.step, distributed.everyone(self.index.tolist()))


def read(taken: Sequence[Taken]) -> Iterator[tuple[Taken, dict[str, float], bool, bool]]:
    """Each step with its metrics, whether some rank met an unreadable image, and whether some rank is asked to stop.

    Speed is that of all these steps together: the host hands steps to a GPU long before they are done.
    """
    rows = torch.stack([each.values for each in taken]).tolist()  # one wait for all of them
    seconds = max(taken[-1].ended, time.perf_counter() if taken[-1].values.is_cuda else 0.0) - taken[0].began
    samples = sum(len(each.index) for each in taken) * distributed.world_size()
    speed = {"images_per_s": samples / seconds, "wait": sum(each.arrived - each.began for each in taken) / seconds}
    for each, row in zip(taken, rows, strict=True):
        each.check(row)
        metrics, (_, unreadable, stop) = dict(zip(each.names, row, strict=False)), row[-_FLAGS:]
        yield each, {**metrics, "lr": each.lr, **speed}, unreadable > 0, stop > 0


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
    head_steps: int = 0,
    precision: Precision = "float32",
    scaler: torch.amp.GradScaler | None = None,
    stop: Callable[[], bool] = lambda: False,
    wait: bool = True,
) -> Iterator[Taken]:
    """Takes a step for each of the `batches`, which belong to a run of `steps` steps.

    A batch is worked on in `accumulate` equal parts whose gradients add up to its own. In the first `head_steps` steps
    the weights of the backbone stay as they are. `scaler` is what float16 needs.
    Between two yields the state is whole: whoever iterates may save it, evaluate the encoder or stop. `stop` tells
    whether this rank is asked to; all ranks learn it by the one message in which they also average the metrics.

    With `wait` a step that is not finite raises before the weights are touched. Without it nobody waits for the
    device: such an update, and any later one, is left out there, and `read` raises.
    """
    method.train()
    scaler = scaler or torch.amp.GradScaler(device.type, enabled=False)
    sound = torch.ones((), dtype=torch.bool, device=device)
    source = iter(copied_ahead(batches, device))
    began = time.perf_counter()
    while (batch := next(source, None)) is not None:
        arrived = time.perf_counter()
        schedule.step_update(batch.step)
        # What draws from PyTorch's generators, such as dropout, depends on the place in the run and not on its past.
        torch.manual_seed(int(counter.bits(method.seed, _DROPOUT, batch.step, distributed.rank())))
        optimizer.zero_grad(set_to_none=True)
        parts = []
        for part, share in enumerate(batch.chunk(accumulate)):
            # Planned on the host, which has to read the plan to know what is to be done.
            views = augment.apply(share.fields, augment.plan(share.index, batch.epoch), cut=batch.cut)
            index = share.index.to(device, non_blocking=True)
            if precision == "float64":
                views = {name: view.double() for name, view in views.items()}
            with method.deferred_average() if part + 1 < accumulate else nullcontext():
                with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
                    metrics = method.step(ViewBatch(views, index, batch.step, steps, part))
                scaler.scale(metrics["loss"] / accumulate).backward()
            parts.append(torch.stack([value.detach().to(metrics["loss"].dtype) for value in metrics.values()]))
        if batch.step < head_steps:
            for parameter in method.encoder.backbone.parameters():
                parameter.grad = None  # which an optimizer passes over, weight decay included
        # The scaler of float16 expects infinite gradients, and leaves such updates out itself.
        bad = torch.zeros((), device=device) if scaler.is_enabled() else ~_finite(trainable(method))
        flags = torch.tensor([bool(batch.unreadable), stop()]).to(device, non_blocking=True)
        values = torch.stack(parts).mean(0)
        taken = Taken(
            batch.step,
            batch.index,
            tuple(zip(batch.unreadable, batch.reasons, strict=True)),
            tuple(metrics),
            distributed.mean(torch.cat((values, bad.to(values).view(1), flags.to(values)))),
            optimizer.param_groups[0]["lr"],
            began,
            arrived,
        )
        if wait:
            taken.check(taken.values.tolist())
        else:
            sound &= taken.values[0].isfinite() & (taken.values[-_FLAGS] == 0)
        if clip_grad is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(trainable(method), clip_grad)
        with nullcontext() if wait else _undone_unless(sound, trainable(method)):
            scaler.step(optimizer)
        scaler.update()
        method.after_step()
        yield replace(taken, ended=time.perf_counter())
        began = time.perf_counter()


def _finite(parameters: Iterable[Tensor]) -> Tensor:
    """Whether all gradients are finite, as one number on the device."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.stack(torch._foreach_norm(gradients, math.inf)).isfinite().all()


@contextmanager
def _undone_unless(sound: Tensor, parameters: Sequence[Tensor]) -> Iterator[None]:
    """Restores the parameters after this context if `sound` is false, without waiting for the device to tell."""
    before = [parameter.detach().clone() for parameter in parameters]
    yield
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=True):
            parameter.copy_(torch.where(sound, parameter, old))


def copied_ahead(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The batches on the device. A GPU gets each one while it computes the step before."""
    if device.type != "cuda":
        return (batch.map(lambda field: field.to(device)) for batch in batches)
    return _one_ahead(batches, _Copy(device))


class _Copy:
    """Copies batches to a GPU on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)

    def start(self, batch: Batch) -> Batch:
        with torch.cuda.stream(self.stream):
            # Memory that is not pinned would be copied while the host waits. PyTorch frees it when the copy is done.
            return batch.map(lambda field: field.pin_memory().to(self.device, non_blocking=True))

    def finish(self, batch: Batch) -> Batch:
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)
        for field in batch.fields.values():
            field.record_stream(current)  # its memory must not be given away while a step reads it
        return batch


def _one_ahead(batches: Iterable[Batch], copy: _Copy) -> Iterator[Batch]:
    under_way: Batch | None = None
    for batch in batches:
        ready = None if under_way is None else copy.finish(under_way)
        under_way = copy.start(batch)
        if ready is not None:
            yield ready
    if under_way is not None:
        yield copy.finish(under_way)


def trainable(module: nn.Module) -> list[Tensor]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def build_optimizer(method: Method, config: OptimConfig) -> torch.optim.Optimizer:
    scale = {"none": 1.0, "linear": config.batch_size / 256, "sqrt": math.sqrt(config.batch_size / 256)}[config.lr_rule]
    extra: dict[str, Any] = {"betas": (0.5, 0.999)} if config.optimizer == "adam" else {}
    spared = config.optimizer in ("adamw", "lars")  # biases and normalisation have no weight decay
    same = config.backbone_lr in (None, config.lr) and config.layer_decay == 1
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        method if same else groups(method, config, spared),
        opt="momentum" if config.optimizer == "sgd" else config.optimizer,  # timm's "sgd" is Nesterov's
        lr=config.lr * scale,
        weight_decay=config.weight_decay,
        momentum=config.sgd_momentum,
        filter_bias_and_bn=spared,
        **extra,
    )
    return optimizer


def groups(method: Method, config: OptimConfig, spared: bool) -> list[dict[str, Any]]:
    """Parameters by learning rate: those of the backbone have one of their own, which may fall from layer to layer."""
    backbone = method.encoder.backbone
    its = param_groups_layer_decay(
        backbone, config.weight_decay, layer_decay=config.layer_decay, weight_decay_exclude_1d=spared
    )
    for group in its:
        group["lr_scale"] *= (config.backbone_lr or config.lr) / config.lr  # which timm's schedules multiply with
    known = set(map(id, backbone.parameters()))
    others = [each for each in trainable(method) if id(each) not in known]
    plain = [each for each in others if spared and each.ndim <= 1]
    decayed = [each for each in others if not (spared and each.ndim <= 1)]
    heads = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return [*(group for group in heads if group["params"]), *its]  # the head first: its rate is the one that is logged


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
