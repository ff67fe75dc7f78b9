"""The ranks of a run. The only file that names torch.distributed; alone, everything here is the identity."""

import inspect
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyview.errors import UserError

T = TypeVar("T")

_NEWER = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
_BUFFERS = "forward_sync_buffers" if _NEWER else "broadcast_buffers"  # what PyTorch calls the broadcast of buffers
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")  # Gloo's words
_PATIENCE = timedelta(minutes=30)  # for a rank that packs a set of images before the others may read it


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


# Coming together


@contextmanager
def connected() -> Iterator[None]:
    """Joins the ranks that `torchrun` started; without it there is nothing to join."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    store, rank, world_size = next(dist.rendezvous("env://", timeout=_PATIENCE))
    # Gloo carries what lies on the host (flags, counts), NCCL what lies on GPUs.
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=dist.PrefixStore(_agree_on_name(store, rank, world_size), store),
        rank=rank,
        world_size=world_size,
        timeout=_PATIENCE,
    )
    try:
        yield
    except RuntimeError as error:
        sign = next((sign for sign in _LOST if sign in str(error)), None)
        if sign is None and not isinstance(error, dist.DistBackendError):
            raise
        raise UserError(
            f"lost contact with another process ({sign or str(error).splitlines()[0]}): its own message says why; "
            "with `torchrun --max-restarts 3` all go on from the last checkpoint by themselves"
        ) from error
    finally:
        dist.destroy_process_group()


def _agree_on_name(store: dist.Store, rank: int, world_size: int) -> str:
    """A name that this start's processes share with none of an earlier one.

    `torchrun` may keep its store over a restart, with the addresses of the dead in it, and its count of restarts
    differs between machines. So rank 0 makes up a name and answers every rank that asks, until all have heard it: a
    question that a dead one left behind is answered too, but nobody hears that.
    """
    mine = uuid.uuid4().hex
    if rank > 0:
        store.set(f"manyview/asks/{rank}", mine)
        name: str = store.get(f"manyview/answer/{mine}").decode()
        store.set(f"manyview/heard/{name}/{rank}", "")
        return name
    waiting, answered = set(range(1, world_size)), set()
    while waiting:
        for other in tuple(waiting):
            if store.check([f"manyview/heard/{mine}/{other}"]):
                waiting.remove(other)
            elif store.check([f"manyview/asks/{other}"]):
                asking = store.get(f"manyview/asks/{other}").decode()
                if asking not in answered:
                    store.set(f"manyview/answer/{asking}", mine)
                    answered.add(asking)
        time.sleep(0.01)
    return mine


def launch() -> str | None:
    """What all processes of one `torchrun` share, its restarts included, and no other has."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    # "none" is torchrun's word where it was given no --rdzv-id; then its process tells it from others.
    return f"{socket.gethostname()}:{os.getppid()}" if name == "none" else name


def local_device() -> torch.device:
    """The GPU that is this rank's own."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextmanager
def first_on_each_machine() -> Iterator[None]:
    """What is done here one rank of each machine does first; the others find it done."""
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0 or world_size() == 1
    if not first:
        dist.barrier()
    try:
        yield
    finally:
        if first and world_size() > 1:
            dist.barrier()


# What a step exchanges


def gather(x: Tensor, *, dim: int = 0) -> Tensor:
    """The tensors of all ranks joined along `dim`, in rank order, with gradient.

    Each rank's loss depends on every rank's tensor, so a tensor's gradient is the SUM of what all ranks send back.
    """
    if world_size() == 1:
        return x
    return _Gather.apply(x, dim)  # type: ignore[no-any-return]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.dim, ctx.size = dim, x.shape[dim]
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        return total.narrow(ctx.dim, rank() * ctx.size, ctx.size), None


def permute(x: Tensor, order: Tensor) -> Tensor:
    """This rank's part of `joined[order]`, where `joined` are the rows of all ranks, as many on each, in rank order.

    `order` is the same on all ranks, and on the CPU. A row travels once, to the rank that wants it.
    """
    if world_size() == 1:
        return x.index_select(0, order.to(x.device))
    n, here = len(x), rank()
    home, place = order // n, order % n  # of the row that stands at each place of the result
    wanted_by = torch.arange(len(order)) // n
    leaving = place[home == here]  # in the order of those who want them
    arriving = home[wanted_by == here]
    sent = torch.bincount(wanted_by[home == here], minlength=world_size()).tolist()
    received = torch.bincount(arriving, minlength=world_size()).tolist()
    result = x.new_empty(n, *x.shape[1:])
    dist.all_to_all_single(result, x.index_select(0, leaving.to(x.device)), received, sent)
    # They come sorted by where they come from.
    return result.index_select(0, arriving.argsort(stable=True).argsort().to(x.device))


# What a run agrees on


def mean(values: Tensor) -> Tensor:
    """The mean over the ranks, without gradient."""
    if world_size() == 1:
        return values
    result = values.detach().clone()
    dist.all_reduce(result, op=dist.ReduceOp.SUM)
    return result / world_size()


def anyone(flag: bool) -> bool:
    """Whether it is true on some rank: then all act on it in the same step."""
    if world_size() == 1:
        return flag
    flags = torch.tensor(flag, dtype=torch.uint8)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags)


def wait_for_all() -> None:
    """Returns when all ranks are here."""
    if world_size() > 1:
        dist.barrier()


def everyone(value: list[T]) -> list[T]:
    """The lists of all ranks, joined. For what is rare: they are pickled between the processes of one run."""
    if world_size() == 1:
        return value
    lists: list[list[T]] = [[] for _ in range(world_size())]
    dist.all_gather_object(lists, value)
    return [item for each in lists for item in each]


def parallel(module: nn.Module) -> nn.Module:
    """The module, so that its gradients become the mean over the ranks as they are computed.

    Buffers stay each rank's own: broadcasting statistics costs a message per step, and only rank 0's are written.
    """
    if world_size() == 1:
        return module
    options: dict[str, Any] = {_BUFFERS: False}
    return DistributedDataParallel(module, gradient_as_bucket_view=True, **options)


def deferred_average(call: Callable[..., Any]) -> AbstractContextManager[None]:
    """In this context gradients add up on each rank; the next backward pass outside it averages the sum."""
    context: AbstractContextManager[None] = (
        call.no_sync() if isinstance(call, DistributedDataParallel) else nullcontext()
    )
    return context
