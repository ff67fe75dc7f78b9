"""Every method on two real ranks and on one: the same losses, gradients, weights and queue."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from stepping import make
from torch import Tensor

from manyview import distributed
from manyview.encoders import Towers
from manyview.fields import FIELDS
from manyview.methods import described, find
from manyview.methods.base import Method, ViewBatch
from manyview.train import trainable

SAMPLES, STEPS = 4, 3
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {} for name in described()},
    "cacr rbf": {"cost": "rbf"},
    "cacr-moco rbf": {"cost": "rbf"},
    "au-cl with contrast": {"contrastive_weight": 1.0},
    "au-cl-moco with contrast": {"contrastive_weight": 1.0},
    "cacr-moco without the batch": {"with_intra_batch": False},
    "cacr-moco masked": {"mask_own": True},
    "vanilla, all branches": {"all_branches": True},
    "cmc by nce": {"contrast": "nce"},
    "cmc of one view": {"views": "RGB"},
    "cmc of four views": {"views": "lab,depth,normals"},
    "cmc by nce, some missing": {"views": "lab,depth,normals", "graph": "core", "contrast": "nce"},
    "cmc-moco, some missing": {"views": "L,depth,normals"},
    "cmc-patch, some missing": {"views": "L,depth,normals"},
    "predictive, some missing": {"views": "L,depth,normals"},
    **{f"{name}, in groups": {} for name in ("au-cl", "cacr-moco", "cmc", "cmc-moco", "cmc-patch", "jcl", "simclr")},
    **{f"{name}, a stand-in": {} for name in ("cacr", "cacr-moco", "cmc-patch", "hn-cl", "simclr")},
}


def method_of(variant: str) -> Method:
    kind = find(variant.split(",")[0].split()[0])
    known = {field.name for field in fields(kind.Config)}
    few = {"views": 3, "keys": 2, "queue_size": 10, "momentum": 0.9, "draw": 7}
    if isinstance(getattr(kind.Config(), "views", None), str):
        known.remove("views")  # a colour space
    config = replace(kind.Config(), **{name: few[name] for name in few if name in known}, **VARIANTS[variant])
    method: Method = make(kind, config)
    if isinstance(method.encoder.backbone, Towers):
        for normalise in method.encoder.backbone.normalise.children():
            normalise.get_buffer("std").fill_(50.0)  # of the order of L's: raw, `predictive` would diverge
    if "missing" in variant:
        there = torch.arange(100) % 3 != 1
        method.know_present({"depth": there, "normals": ~there | (torch.arange(100) % 3 == 0)})
    if "groups" in variant:
        method.know_groups(torch.arange(100) % 3)
    return method


def learn(variant: str) -> dict[str, Tensor]:
    """What a few steps leave behind, with this rank's part of each batch."""
    method = method_of(variant)
    method.parallelise()
    optimizer = torch.optim.SGD(trainable(method), lr=0.1, momentum=0.9)
    share = SAMPLES // distributed.world_size()
    mine = slice(distributed.rank() * share, (distributed.rank() + 1) * share)
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        crops = method.view_count(method.config)
        views = {
            name: torch.rand(crops, SAMPLES, FIELDS[name].channels, 16, 16, generator=generator).double()
            for name in method.encoder.config.fields
        }
        index = torch.arange(SAMPLES)  # the same samples each time, so that masking their own keys matters
        if "stand-in" in variant:
            index[3] = 1  # which is on the other rank
        share_of_views = {name: view[:, mine] for name, view in views.items()}
        loss = method.step(ViewBatch(share_of_views, index[mine], step, STEPS))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_step()
        losses.append(distributed.mean(loss.detach()))
    sums = {f"momentum {i}": state["momentum_buffer"] for i, state in enumerate(optimizer.state.values())}
    return {"losses": torch.stack(losses), **sums, **method.state_dict()}


def work(rank: int, store: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.save({variant: learn(variant) for variant in VARIANTS}, f"{out}{rank}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    place = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (str(place / "store"), str(place / "rank")), nprocs=2)
    return [torch.load(place / f"rank{rank}", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_ranks_learn_what_one_learns(variant: str, together: list[dict[str, dict[str, Tensor]]]) -> None:
    alone = learn(variant)
    for rank in together:
        assert rank[variant].keys() == alone.keys()
        for name, expected in alone.items():
            # Z₀ is a sum of exponentials: of the order of a million.
            assert (rank[variant][name] - expected).abs().max() < 1e-9 * max(1.0, float(expected.abs().max())), name
    assert alone["momentum 0"].abs().max() > 1e-6
