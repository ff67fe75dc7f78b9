"""Two real processes over gloo: what is gathered and shuffled, what flows back, and what queue and bank hold."""

from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from manyview import distributed
from manyview.negatives import InBatch, MemoryBank, Queue
from manyview.objectives import info_nce, multiview, within_batch


def test_alone_gather_is_the_identity() -> None:
    x = torch.ones(2)
    assert distributed.gather(x) is x
    assert distributed.mean(x) is x
    assert distributed.permute(torch.tensor([5, 6, 7]), torch.tensor([2, 0, 1])).tolist() == [7, 5, 6]
    assert distributed.anyone(True)
    assert not distributed.anyone(False)
    assert distributed.everyone([1]) == [1]
    network = torch.nn.Linear(1, 1)
    assert distributed.parallel(network) is network
    assert (distributed.rank(), distributed.world_size()) == (0, 1)


def remember(part: slice) -> dict[str, torch.Tensor]:
    """Scores, gradients and content of a bank that meets some samples of a batch of four, two of which are the same."""
    torch.manual_seed(0)
    bank = MemoryBank(9, 3, momentum=0.5, draw=5).double()
    query = torch.arange(12, dtype=torch.float64).view(4, 3).cos()[part].clone().requires_grad_()
    index, present = torch.tensor([2, 7, 4, 2])[part], torch.tensor([True, True, False, True])[part]
    scores = bank.similarity(query, index, seed=1, step=2, direction=3)
    positives = bank.positives(query, index)
    (scores.exp().sum() + positives.exp().sum()).backward()
    bank.push(query.detach(), index, present=present)
    assert query.grad is not None
    return {
        "bank scores": scores.detach(),
        "bank positives": positives.detach(),
        "bank gradient": query.grad,
        "bank entries": bank.entries,
    }


def compare(rank: int, samples: int) -> dict[str, torch.Tensor]:
    """Loss and gradient of some samples of a batch of four, of which the first two lack more views than the others."""
    names, part = ("L", "ab", "depth"), slice(samples * rank, samples * (rank + 1))
    here = torch.arange(24, dtype=torch.float64).view(3, 4, 2).sin()[:, part].clone().requires_grad_()
    have = torch.tensor([[True, True, True, True], [False, True, True, True], [True, False, False, True]])[:, part]
    views, present = dict(zip(names, here, strict=True)), dict(zip(names, have, strict=True))
    everywhere = dict(zip(names, distributed.gather(here, dim=1), strict=True))
    present_everywhere = dict(zip(names, distributed.gather(have, dim=1), strict=True))
    loss = multiview(
        views,
        within_batch(views, pool=everywhere, present=present_everywhere, offset=part.start),
        contrast=partial(info_nce, temperature=0.5),
        present=present,
        over_ranks=distributed.mean,
    )
    (loss / distributed.world_size()).backward()
    assert here.grad is not None
    return {"views loss": distributed.mean(loss.detach()), "views gradient": here.grad}


def work(rank: int, store: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    everything = torch.arange(24, dtype=torch.float64).view(2, 4, 3).sin()
    views = everything[:, 2 * rank : 2 * rank + 2].clone().requires_grad_()
    pool = distributed.gather(views, dim=1)
    scores = InBatch("all").similarity(views[0], pool, view=0, offset=2 * rank)
    torch.where(scores.isinf(), 0.0, scores).exp().sum().backward()
    # Row i of rank r is number 4 r + i; the shuffle sends half of them abroad and must bring all of them back.
    mine, order = torch.arange(4.0).view(4, 1) + 4 * rank, torch.tensor([7, 2, 0, 5, 1, 6, 4, 3])
    there = distributed.permute(mine, order)
    back = distributed.permute(there, order.argsort())
    agreed = {
        "anyone": [distributed.anyone(rank == 1), distributed.anyone(False)],
        "everyone": distributed.everyone([f"rank {rank}"] * rank),
        "mean": distributed.mean(torch.tensor([1.0 + rank])),
    }
    torch.manual_seed(0)
    queue = Queue(5, 3)
    queue.push(views[0].detach().float(), torch.arange(2 * rank, 2 * rank + 2))
    results = {"scores": scores.detach(), "gradient": views.grad, "keys": queue.keys, "owner": queue.owner}
    ours = {**remember(slice(2 * rank, 2 * rank + 2)), **compare(rank, 2)}
    torch.save({**results, **ours, "there": there, "back": back, **agreed}, f"{out}{rank}")
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
    alone = {**remember(slice(4)), **compare(0, 4)}
    for name in ("bank scores", "bank positives", "bank gradient"):
        assert torch.allclose(torch.cat([r[name] for r in ranks]), alone[name], atol=1e-12)
    for r in ranks:
        assert torch.equal(r["bank entries"], alone["bank entries"])
        assert torch.allclose(r["views loss"], alone["views loss"], atol=1e-12)
    assert torch.allclose(torch.cat([r["views gradient"] for r in ranks], 1), alone["views gradient"], atol=1e-12)
    assert torch.cat([r["there"] for r in ranks]).flatten().tolist() == [7, 2, 0, 5, 1, 6, 4, 3]
    assert torch.cat([r["back"] for r in ranks]).flatten().tolist() == list(range(8))
    for r in ranks:
        assert r["anyone"] == [True, False]
        assert r["everyone"] == ["rank 1"]
        assert r["mean"].item() == 1.5
