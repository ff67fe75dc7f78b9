"""Two real processes over gloo: what is gathered, what flows back, and what the queue holds."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from manyview import distributed
from manyview.negatives import InBatch, Queue


def test_alone_gather_is_the_identity() -> None:
    x = torch.ones(2)
    assert distributed.gather(x) is x
    assert (distributed.rank(), distributed.world_size()) == (0, 1)


def work(rank: int, store: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    everything = torch.arange(24, dtype=torch.float64).view(2, 4, 3).sin()
    views = everything[:, 2 * rank : 2 * rank + 2].clone().requires_grad_()
    scores = InBatch("all").similarity(views[0], views, view=0)
    torch.where(scores.isinf(), 0.0, scores).exp().sum().backward()
    torch.manual_seed(0)
    queue = Queue(5, 3)
    queue.push(views[0].detach().float(), torch.arange(2 * rank, 2 * rank + 2))
    torch.save(
        {"scores": scores.detach(), "gradient": views.grad, "keys": queue.keys, "owner": queue.owner}, f"{out}{rank}"
    )
    dist.destroy_process_group()


def test_two_ranks_score_learn_and_remember_as_one(tmp_path: Path) -> None:
    mp.spawn(work, (str(tmp_path / "store"), str(tmp_path / "rank")), nprocs=2)
    ranks = [torch.load(tmp_path / f"rank{r}", weights_only=True) for r in (0, 1)]
    everything = torch.arange(24, dtype=torch.float64).view(2, 4, 3).sin().requires_grad_()
    scores = InBatch("all").similarity(everything[0], everything, view=0)
    torch.where(scores.isinf(), 0.0, scores).exp().sum().backward()
    assert torch.allclose(torch.cat([r["scores"] for r in ranks]), scores.detach(), atol=1e-12)
    # Gathered tensors receive the sum of both ranks' gradients: an average would halve the cross terms.
    assert everything.grad is not None
    assert torch.allclose(torch.cat([r["gradient"] for r in ranks], 1), everything.grad, atol=1e-12)
    assert torch.equal(ranks[0]["keys"], ranks[1]["keys"])
    assert ranks[0]["owner"].tolist() == [0, 1, 2, 3, -1]
