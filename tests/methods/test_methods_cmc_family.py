"""The methods around CMC, step by step: with a jigsaw, with patches, and the rival that predicts."""

from typing import Any

import pytest
import torch
from stepping import QUEUE, make, moved, value
from torch import Tensor
from torch.nn import functional as F

from manyview.encoders import layer_features
from manyview.errors import UserError
from manyview.fields import FIELDS
from manyview.methods.banked import Banked
from manyview.methods.base import ViewBatch
from manyview.methods.cmc import CMC, CMCConfig
from manyview.methods.cmc_moco import CMCMoCo
from manyview.methods.cmc_moco_pirl import CMCMoCoPIRL, CMCMoCoPIRLConfig
from manyview.methods.cmc_patch import CMCPatch, CMCPatchConfig
from manyview.methods.cmc_pirl import CMCPIRL, CMCPIRLConfig
from manyview.methods.pirl import PIRL, PIRLConfig
from manyview.methods.predictive import Predictive, PredictiveConfig
from manyview.methods.queued_graph import QueuedGraph
from manyview.views.patches import Jigsaw

N, SAMPLES = 4, 100
SMALL: dict[str, Any] = {"draw": 9, "temperature": 0.2}


def crops(count: int, *others: str, size: int = 24) -> ViewBatch:
    """Of images, and of other fields."""
    generator = torch.Generator().manual_seed(0)
    fields = {
        name: torch.rand(count, N, FIELDS[name].channels, size, size, generator=generator).double()
        for name in ("image", *others)
    }
    return ViewBatch(fields, torch.tensor([3, 50, 99, 1]), 2, 10)


def jigsaw_views(method: Any, b: ViewBatch) -> dict[str, Tensor]:
    """(N, D) by view of the nine patches of the last crop, sample by sample."""
    jigsaw = Jigsaw(side=6, seed=0)  # three quarters of a third of 24
    patches = jigsaw.apply(b.images[-1], jigsaw.plan(b.index, b.step))
    rows: dict[str, list[Tensor]] = {name: [] for name in method.names}
    for sample in patches:
        for name, features in method.encoder.backbone({"image": sample}).items():
            each, whole = method.jigsaw.each[name], method.jigsaw.all[name]
            rows[name].append(F.normalize(whole(torch.cat([each(patch) for patch in features])), dim=0))
    return {name: torch.stack(each) for name, each in rows.items()}


def cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    logits = torch.cat([positive[:, None], negatives], 1) / 0.2
    return (logits.logsumexp(1) - logits[:, 0]).mean()


def against_bank(method: Any, b: ViewBatch, anchors: Tensor, bank: str, number: int) -> Tensor:
    memory = method.banks[bank]
    drawn = memory.drawn(b.index, seed=0, step=b.step, direction=number)
    negatives = torch.stack([memory.entries[drawn[i]] @ anchors[i] for i in range(N)])
    return cross_entropy((anchors * memory.entries[b.index]).sum(1), negatives)


def same_gradients(method: Any, got: Tensor, expected: Tensor) -> None:
    assert value(got) == pytest.approx(value(expected), abs=1e-10)
    parameters = [parameter for parameter in method.parameters() if parameter.requires_grad]
    pairs = (torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (got, expected))
    for mine, theirs in zip(*pairs, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or torch.allclose(mine, theirs, atol=1e-10)


def test_pirl_tells_samples_and_their_jigsaws_from_others_by_the_bank_of_samples() -> None:
    method, b = make(PIRL, PIRLConfig(**SMALL)), crops(2)
    whole, shuffled = method.encoder(b.crop(0))["RGB"], jigsaw_views(method, b)["RGB"]
    expected = 0.5 * against_bank(method, b, whole, "RGB", 0) + 0.5 * against_bank(method, b, shuffled, "RGB", 1)
    same_gradients(method, method.step(b)["loss"], expected)
    before = method.banks["RGB"].entries[b.index]
    method.after_step()
    entries = F.normalize(0.5 * before + 0.5 * whole.detach(), dim=1)
    assert torch.allclose(method.banks["RGB"].entries[b.index], entries, atol=1e-10), "the bank holds whole samples"


def test_cmc_with_jigsaw_meets_the_other_view_in_both_branches() -> None:
    method, b = make(CMCPIRL, CMCPIRLConfig(jigsaw=0.3, **SMALL)), crops(2)
    whole = method.encoder(b.crop(0))
    expected = torch.zeros((), dtype=torch.float64)
    for branch, (share, views) in enumerate(((0.7, whole), (0.3, jigsaw_views(method, b)))):
        for way, (anchor, other) in enumerate((("L", "ab"), ("ab", "L"))):
            expected = expected + share * against_bank(method, b, views[anchor], other, 2 * branch + way)
    same_gradients(method, method.step(b)["loss"], expected)


def test_cmc_with_queue_and_jigsaw_meets_the_keys_of_the_other_view() -> None:
    method, b = moved(make(CMCMoCoPIRL, CMCMoCoPIRLConfig(queue_size=QUEUE, temperature=0.2))), crops(3)
    whole, keys = method.encoder(b.crop(0)), method.keys.encoder(b.crop(1))
    expected = torch.zeros((), dtype=torch.float64)
    for views in (whole, jigsaw_views(method, b)):
        for anchor, other in (("L", "ab"), ("ab", "L")):
            positive = (views[anchor] * keys[other]).sum(1)
            expected = expected + 0.5 * cross_entropy(positive, views[anchor] @ method.queue[other].keys.T)
    same_gradients(method, method.step(b)["loss"], expected)


def test_the_rows_of_table_9_are_one_method_with_other_parts() -> None:
    assert all(issubclass(kind, Banked) for kind in (CMC, PIRL, CMCPIRL))
    assert all(issubclass(kind, QueuedGraph) for kind in (CMCMoCo, CMCMoCoPIRL))
    assert (PIRLConfig().views, PIRLConfig().jigsaw) == ("RGB", 0.5)
    assert CMCConfig().jigsaw == 0
    plain, without = make(CMC, CMCConfig(**SMALL)), make(CMCPIRL, CMCPIRLConfig(jigsaw=0.0, **SMALL))
    assert value(plain.step(crops(1))["loss"]) == value(without.step(crops(1))["loss"])


@pytest.mark.parametrize("views", ["lab", "L"])
def test_patches_of_one_view_meet_the_whole_of_another(views: str) -> None:
    """B.2: the mean over the positions of their own sample, against all positions of the others."""
    method, b = make(CMCPatch, CMCPatchConfig(views=views, temperature=0.2)), crops(1)
    assert method.patches.layer == "layer2"
    backbone = method.encoder.backbone
    whole, local = method.encoder(b.crop(0)), {}
    for name, images in backbone.views(b.crop(0)).items():
        head = method.patches.heads[name]
        local[name] = F.normalize(head(layer_features(backbone.networks[name], images, ["layer2"])["layer2"]), dim=1)
    expected = torch.zeros((), dtype=torch.float64)
    for anchor, other in [("L", "ab"), ("ab", "L")] if views == "lab" else [("L", "L")]:
        places = local[other].flatten(2)
        for i in range(N):
            others = torch.cat([whole[anchor][i] @ places[j] for j in range(N) if j != i])
            for positive in whole[anchor][i] @ places[i]:
                logits = torch.cat([positive[None], others]) / 0.2
                expected = expected + (logits.logsumexp(0) - logits[0]) / (N * places.shape[2])
    same_gradients(method, method.step(b)["loss"], expected)


def test_strided_crops_are_patches_too() -> None:
    """49 crops of 64 pixels; here four of 24, each encoded by itself."""
    method, b = make(CMCPatch, CMCPatchConfig(views="rgb", strided=True, temperature=0.2)), crops(1)
    backbone = method.encoder.backbone
    names = list(backbone.named)
    whole = method.encoder(b.crop(0))
    local: dict[str, Tensor] = {}
    for name, images in backbone.views(b.crop(0)).items():
        head = method.patches.heads[name]
        corners = [images[:, :, top : top + 16, left : left + 16] for top in (0, 8) for left in (0, 8)]
        local[name] = torch.stack([F.normalize(head(backbone.networks[name](crop)), dim=1) for crop in corners], 1)
    expected = torch.zeros((), dtype=torch.float64)
    for anchor, other in (names, names[::-1]):
        for i in range(N):
            others = torch.cat([local[other][j] @ whole[anchor][i] for j in range(N) if j != i])
            for positive in local[other][i] @ whole[anchor][i]:
                logits = torch.cat([positive[None], others]) / 0.2
                expected = expected + (logits.logsumexp(0) - logits[0]) / (N * 4)
    same_gradients(method, method.step(b)["loss"], expected)
    with pytest.raises(UserError, match="--layer layer1 and --strided are two kinds of patches: leave one out"):
        make(CMCPatch, CMCPatchConfig(layer="layer1", strided=True))


def test_what_stands_for_a_missing_view_does_not_matter_to_patches() -> None:
    method, b = make(CMCPatch, CMCPatchConfig(views="L,depth")), crops(1, "depth")
    before = value(method.step(b)["loss"])
    there = torch.ones(SAMPLES, dtype=torch.bool)
    there[50] = False
    method.know_present({"depth": there})
    losses = []
    for stand_in in (0.0, 0.7):
        b.views["depth"][:, 1] = stand_in  # of sample 50
        losses.append(value(method.step(b)["loss"]))
    assert losses[0] == losses[1]
    assert losses[0] != before


def test_a_layer_without_positions_is_refused() -> None:
    with pytest.raises(UserError, match="--layer global_pool gives no map of positions"):
        make(CMCPatch, CMCPatchConfig(layer="global_pool"))
    with pytest.raises(UserError, match="--layer conv9 is no layer of this backbone: take some of conv1"):
        make(CMCPatch, CMCPatchConfig(layer="conv9"))


@pytest.mark.parametrize("distance", ["l1", "l2"])
def test_predictions_are_compared_pixel_by_pixel(distance: Any) -> None:
    method = make(Predictive, PredictiveConfig(views="L,depth,normals", graph="core", distance=distance))
    b = crops(1, "depth", "normals", size=16)
    views = method.encoder.backbone.views(b.crop(0))
    expected = torch.zeros((), dtype=torch.float64)
    for number, (a, z) in enumerate([("L", "depth"), ("depth", "L"), ("L", "normals"), ("normals", "L")]):
        made = method.decoders[number](method.encoder.backbone.networks[a](views[a]), 16)
        difference = made - views[z]
        expected = expected + (difference.abs() if distance == "l1" else difference.square()).mean()
    same_gradients(method, method.step(b)["loss"], expected)
    with pytest.raises(UserError, match="--views L leaves nothing to predict: name two or more"):
        make(Predictive, PredictiveConfig(views="L"))


@pytest.mark.parametrize("size", [16, 30, 64])
def test_decoders_reach_any_size(size: int) -> None:
    method = make(Predictive, PredictiveConfig())
    assert method.decoders[0](torch.rand(2, 256).double(), size).shape == (2, 2, size, size)
