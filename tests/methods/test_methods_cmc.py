"""CMC's step against its equations written out, and the state that it keeps."""

import math
from typing import Any

import pytest
import torch
from stepping import QUEUE, make, moved, value
from torch import Tensor

from manyview.errors import UserError
from manyview.fields import FIELDS
from manyview.methods.base import ViewBatch
from manyview.methods.cmc import CMC, CMCConfig
from manyview.methods.cmc_moco import CMCMoCo, CMCMoCoConfig

N, SAMPLES = 4, 100
SMALL = {"draw": 9, "temperature": 0.2}


def images(step: int = 0) -> ViewBatch:
    drawn = torch.rand(1, N, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
    return ViewBatch({"image": drawn}, torch.tensor([3, 50, 99, 1]) - step, step, 10)


def scores(method: Any, b: ViewBatch) -> list[tuple[Tensor, Tensor]]:
    """Positives (N,) and negatives (N, m) of L against the bank of ab, and the other way round, sample by sample."""
    views = method.encoder(b.crop(0))
    result = []
    for direction, (anchors, bank) in enumerate(((views["L"], method.banks["ab"]), (views["ab"], method.banks["L"]))):
        drawn = bank.drawn(b.index, seed=0, step=b.step, direction=direction)
        assert not (drawn == b.index[:, None]).any()
        positives = torch.stack([anchors[i] @ bank.entries[b.index[i]] for i in range(N)])
        negatives = torch.stack([torch.stack([anchors[i] @ bank.entries[j] for j in drawn[i]]) for i in range(N)])
        result.append((positives, negatives))
    return result


def test_a_step_is_the_two_view_loss_in_both_directions() -> None:
    """Eq. 2-4, with m negatives of each anchor from the other view's bank."""
    method, b = make(CMC, CMCConfig(**SMALL)), images()  # type: ignore[arg-type]
    metrics = method.step(b)
    expected = torch.zeros(())
    for positives, negatives in scores(method, b):
        logits = torch.cat([positives[:, None], negatives], 1) / 0.2
        expected = expected + (logits.logsumexp(1) - logits[:, 0]).mean()
    assert value(metrics["loss"]) == pytest.approx(value(expected), abs=1e-10)
    assert value(metrics["information"]) == pytest.approx(math.log(9) - value(expected) / 2, abs=1e-10)
    parameters = list(method.encoder.parameters())
    for got, want in zip(*(torch.autograd.grad(loss, parameters) for loss in (metrics["loss"], expected)), strict=True):
        assert torch.allclose(got, want, atol=1e-10)


def test_nce_takes_its_constants_from_the_first_batch_and_keeps_them() -> None:
    """Eq. 9-11: h = exp(s/τ)/Z₀, noise 1/n."""
    method = make(CMC, CMCConfig(contrast="nce", **SMALL))  # type: ignore[arg-type]
    first = images()
    constants = []
    expected = torch.zeros(())
    for positives, negatives in scores(method, first):
        z = SAMPLES * torch.cat([positives, negatives.flatten()]).div(0.2).exp().mean()
        data, noise = positives.div(0.2).exp() / z, negatives.div(0.2).exp() / z
        share = 9 / SAMPLES
        terms = -torch.log(data / (data + share)) - torch.log(share / (noise + share)).sum(1)
        expected = expected + terms.mean()
        constants.append(z.detach())
    assert value(method.step(first)["loss"]) == pytest.approx(value(expected), abs=1e-9)
    assert torch.allclose(method.normalisers, torch.stack(constants))
    method.after_step()
    kept = method.normalisers.clone()
    method.step(images(1))
    assert torch.equal(method.normalisers, kept)
    assert "normalisers" in method.state_dict()


def test_banks_follow_after_the_step() -> None:
    method, b = make(CMC, CMCConfig(**SMALL)), images()  # type: ignore[arg-type]
    before = {name: bank.entries.clone() for name, bank in method.banks.items()}
    method.step(b)
    assert all(torch.equal(bank.entries, before[name]) for name, bank in method.banks.items())
    views = method.encoder(b.crop(0))
    method.after_step()
    for name, bank in method.banks.items():
        old, view = before[name], views[name]
        moved = torch.nn.functional.normalize(0.5 * old[b.index] + 0.5 * view.detach(), dim=1)
        assert torch.allclose(bank.entries[b.index], moved, atol=1e-10)
        others = torch.ones(SAMPLES, dtype=torch.bool)
        others[b.index] = False
        assert torch.equal(bank.entries[others], old[others])


def test_with_a_queue_anchors_meet_the_keys_of_the_other_view() -> None:
    method = moved(make(CMCMoCo, CMCMoCoConfig(queue_size=QUEUE, temperature=0.2)))
    crops = torch.rand(2, N, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    b = ViewBatch({"image": crops}, torch.arange(N), 0, 10)
    q, k = method.encoder(b.crop(0)), method.keys.encoder(b.crop(1))
    stored = {name: queue.keys.clone() for name, queue in method.queue.items()}
    expected = torch.zeros(())
    for anchor, other in (("L", "ab"), ("ab", "L")):
        logits = torch.cat([(q[anchor] * k[other]).sum(1, keepdim=True), q[anchor] @ stored[other].T], 1) / 0.2
        expected = expected + (logits.logsumexp(1) - logits[:, 0]).mean()
    metrics = method.step(b)
    assert value(metrics["loss"]) == pytest.approx(value(expected), abs=1e-10)
    assert value(metrics["information"]) == pytest.approx(math.log(QUEUE) - value(expected) / 2, abs=1e-10)
    parameters = list(method.encoder.parameters())
    for got, want in zip(*(torch.autograd.grad(loss, parameters) for loss in (metrics["loss"], expected)), strict=True):
        assert torch.allclose(got, want, atol=1e-10)
    method.after_step()
    for name, queue in method.queue.items():
        assert torch.allclose(queue.keys[:N], k[name], atol=1e-10)


VIEWS = "L,depth,normals"
THERE = {"depth": torch.arange(SAMPLES) % 2 == 1, "normals": torch.arange(SAMPLES) % 3 != 2}


def many(views: int = 1) -> ViewBatch:
    drawn = torch.rand(views, N, 7, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    image, depth, normals = drawn.split([3, 1, 3], 2)
    fields = {"image": image, "depth": depth, "normals": normals}
    return ViewBatch(fields, torch.tensor([3, 50, 99, 1]), 0, 10)


def present(name: str, sample: int) -> bool:
    return name not in THERE or bool(THERE[name][sample])


@pytest.mark.parametrize(("graph", "core"), [("full", None), ("core", "depth")])
@pytest.mark.parametrize("missing", [False, True])
def test_any_number_of_views_meet_along_the_graph(graph: Any, core: str | None, missing: bool) -> None:
    """Eq. 7 and 8, anchor by anchor; where views are missing, over the samples and the negatives that have them."""
    method, b = make(CMC, CMCConfig(views=VIEWS, graph=graph, core=core, **SMALL)), many()  # type: ignore[arg-type]
    if missing:
        method.know_present(THERE)
    parts = method.encoder(b.crop(0))
    pairs = [("depth", "L"), ("depth", "normals")] if core else [("L", "depth"), ("L", "normals"), ("depth", "normals")]
    expected, direction = torch.zeros((), dtype=torch.float64), 0
    bounds, cosines = dict[tuple[str, str], list[float]](), list[float]()
    for a, z in pairs:
        for anchor, other in ((a, z), (z, a)):
            bank = method.banks[other]
            drawn = bank.drawn(b.index, seed=0, step=0, direction=direction)
            terms = []
            for i, sample in enumerate(b.index.tolist()):
                if missing and not (present(anchor, sample) and present(other, sample)):
                    continue
                met = [sample, *(j for j in drawn[i].tolist() if not missing or present(other, j))]
                logits = torch.stack([parts[anchor][i] @ bank.entries[j] for j in met]) / 0.2
                terms.append(logits.logsumexp(0) - logits[0])
                bounds.setdefault((a, z), []).append(math.log(max(1, len(met) - 1)) - value(terms[-1]))
                cosines.append(0.2 * value(logits[0]))
            expected = expected + torch.stack(terms).mean()
            direction += 1
    metrics = method.step(b)
    assert value(metrics["loss"]) == pytest.approx(value(expected), abs=1e-10)
    assert value(metrics["positive"]) == pytest.approx(sum(cosines) / len(cosines), abs=1e-10)
    each = {f"information_{a}_{z}": sum(found) / len(found) for (a, z), found in bounds.items()}
    assert {name: value(metrics[name]) for name in each} == pytest.approx(each, abs=1e-10)
    assert value(metrics["information"]) == pytest.approx(sum(each.values()) / len(each), abs=1e-10)
    before = {name: bank.entries.clone() for name, bank in method.banks.items()}
    method.after_step()
    for name, bank in method.banks.items():
        old = before[name]
        for sample in b.index.tolist():
            stays = missing and not present(name, sample)
            assert torch.equal(bank.entries[sample], old[sample]) == stays, "a missing view leaves its entry alone"


def test_a_batch_whose_samples_each_have_one_view_teaches_nothing() -> None:
    for contrast in ("softmax", "nce"):
        method = make(CMC, CMCConfig(views="L,depth", contrast=contrast, **SMALL))  # type: ignore[arg-type]
        method.know_present({"depth": torch.zeros(SAMPLES, dtype=torch.bool)})
        metrics = method.step(many())
        loss = metrics["loss"]
        assert value(loss) == value(metrics["positive"]) == value(metrics.get("information", loss)) == 0
        loss.backward()
        assert all(p.grad is None or not p.grad.any() for p in method.encoder.parameters())


def test_a_single_view_is_told_from_other_samples() -> None:
    """Instance discrimination: its own entry in the bank is the positive."""
    method, b = make(CMC, CMCConfig(views="RGB", **SMALL)), images()  # type: ignore[arg-type]
    anchors, bank = method.encoder(b.crop(0))["RGB"], method.banks["RGB"]
    drawn = bank.drawn(b.index, seed=0, step=0, direction=0)
    logits = (
        torch.cat(
            [
                (anchors * bank.entries[b.index]).sum(1, keepdim=True),
                torch.einsum("nd,nmd->nm", anchors, bank.entries[drawn]),
            ],
            1,
        )
        / 0.2
    )
    expected = (logits.logsumexp(1) - logits[:, 0]).mean()
    assert value(method.step(b)["loss"]) == pytest.approx(value(expected), abs=1e-10)


def test_missing_views_do_not_count_among_the_keys_of_a_queue() -> None:
    config = CMCMoCoConfig(views=VIEWS, queue_size=QUEUE, temperature=0.2)
    method, b = moved(make(CMCMoCo, config)), many(2)
    method.know_present(THERE)
    for queue in method.queue.values():
        queue.owner[:10] = torch.arange(10)
    names = ["L", "depth", "normals"]
    q, k = method.encoder(b.crop(0)), method.keys.encoder(b.crop(1))
    stored = {name: queue.keys for name, queue in method.queue.items()}
    expected = torch.zeros((), dtype=torch.float64)
    for anchor, other in [(a, z) for a in names for z in names if a != z]:
        slots = [slot for slot in range(QUEUE) if slot >= 10 or present(other, slot)]
        terms = []
        for i, sample in enumerate(b.index.tolist()):
            if present(anchor, sample) and present(other, sample):
                met = torch.cat([k[other][i : i + 1], stored[other][slots]])
                logits = met @ q[anchor][i] / 0.2
                terms.append(logits.logsumexp(0) - logits[0])
        expected = expected + torch.stack(terms).mean()
    assert value(method.step(b)["loss"]) == pytest.approx(value(expected), abs=1e-10)


def test_mistakes_are_answered() -> None:
    with pytest.raises(UserError, match="--draw 100 is not fewer than the 100 samples of --data: use --draw 99"):
        make(CMC, CMCConfig(draw=100))
    with pytest.raises(UserError, match="--bank-momentum 1 leaves the banks as they were drawn"):
        make(CMC, CMCConfig(draw=9, bank_momentum=1.0))
    with pytest.raises(UserError, match=r"--views lob: 'lob' is no view. Take a colour space \(lab, "):
        make(CMC, CMCConfig(views="lob"))
    with pytest.raises(UserError, match="--views lob: 'lob' is no view"):
        make(CMCMoCo, CMCMoCoConfig(views="lob"))
    with pytest.raises(UserError, match="--core H is none of the views L, ab, depth: choose one of them"):
        make(CMC, CMCConfig(views="lab,depth", graph="core", core="H"))
    with pytest.raises(UserError, match="--core L means nothing when all views meet: add --graph core"):
        make(CMC, CMCConfig(views="lab,depth", core="L"))


def test_the_papers_values() -> None:
    config = CMCConfig()
    assert (config.temperature, config.draw, config.bank_momentum, config.contrast) == (0.07, 16_384, 0.5, "softmax")
    optim = CMC.paper.optim
    assert (optim.lr, optim.epochs, optim.schedule, optim.weight_decay) == (0.03, 200, "cosine", 1e-4)


def test_the_full_graph_encodes_each_view_once_and_has_no_more_terms_than_pairs() -> None:
    method = make(CMC, CMCConfig(views="lab,depth,normals,segmentation", **SMALL))  # type: ignore[arg-type]
    encoded: list[str] = []
    for name, network in method.encoder.backbone.networks.items():
        network.register_forward_hook(lambda *_, name=name: encoded.append(name))
    fields = {name: torch.rand(1, N, FIELDS[name].channels, 16, 16).double() for name in method.encoder.config.fields}
    b = ViewBatch(fields, torch.arange(N), 0, 10)
    method.step(b)
    assert sorted(encoded) == sorted(["L", "ab", "depth", "normals", "segmentation"])
    assert len(method.directions) == 2 * (5 * 4 // 2)
