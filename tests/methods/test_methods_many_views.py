"""The family with negatives in the batch: each step against its equation, written out pair by pair."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from stepping import N, batch, make, value
from torch import Tensor

from manyview.methods import described, find
from manyview.methods.au_cl import AUCL, AUCLConfig
from manyview.methods.cacr import CACR, CACRConfig
from manyview.methods.cl import CL, CLConfig
from manyview.methods.cmc_aug import CMCAug, CMCAugConfig
from manyview.methods.hn_cl import HNCL, HNCLConfig
from manyview.methods.many_views import ManyViews
from manyview.methods.mv_dhel import MVDHEL, MVDHELConfig
from manyview.methods.mv_infonce import MVInfoNCE, MVInfoNCEConfig
from manyview.methods.pvc import PVC, PVCConfig
from manyview.methods.simclr import SimCLR, SimCLRConfig
from manyview.objectives import mv_dhel, mv_infonce, pvc

V = 3


def naive_cacr(z: Tensor, config: CACRConfig, owner: Sequence[int]) -> Tensor:
    """Eq. 2-5, query by query: positives in the other views, negatives in the same view."""
    terms = []
    for a, i in product(range(len(z)), range(N)):
        q = z[a, i]
        near = torch.stack([(q - z[b, i]).square().sum() for b in range(len(z)) if b != a])
        far = torch.stack([(q - z[a, j]).square().sum() for j in range(N) if owner[j] != owner[i]])
        pull = (torch.softmax(config.t_pos * near, 0) * near).sum()
        push = (torch.softmax(-config.t_neg * far, 0) * far).sum()
        terms.append(pull - push)
    return torch.stack(terms).mean()


def naive_cl(z: Tensor, config: SimCLRConfig, owner: Sequence[int]) -> Tensor:
    terms = []
    for a, b, i in product(range(len(z)), range(len(z)), range(N)):
        if a != b:
            beside = [j for j in range(N) if j == i or owner[j] != owner[i]]
            rest = [z[a, i] @ z[c, j] for c, j in product(range(len(z)), beside) if (c, j) != (a, i)]
            terms.append(
                torch.stack(rest).div(config.temperature).logsumexp(0) - z[a, i] @ z[b, i] / config.temperature
            )
    return torch.stack(terms).mean()


def naive_cmc(z: Tensor, config: CMCAugConfig, owner: Sequence[int]) -> Tensor:
    terms = []
    for a, b, i in product(range(len(z)), range(len(z)), range(N)):
        if a != b:
            beside = [i, *(j for j in range(N) if owner[j] != owner[i])]
            scores = torch.stack([z[a, i] @ z[b, j] for j in beside]) / config.temperature
            terms.append(scores.logsumexp(0) - scores[0])
    return torch.stack(terms).mean()


def naive_hard(z: Tensor, config: HNCLConfig, owner: Sequence[int]) -> Tensor:
    tau, terms = config.temperature, []
    for a, b, i in product(range(len(z)), range(len(z)), range(N)):
        if a != b:
            p = torch.exp(z[a, i] @ z[b, i] / tau)
            others = [j for j in range(N) if owner[j] != owner[i]]
            e = torch.stack([torch.exp(z[a, i] @ z[c, j] / tau) for c, j in product(range(len(z)), others)])
            weighted = (e**config.beta * e).sum() / (e**config.beta).mean()
            corrected = (weighted - len(e) * config.tau_plus * p) / (1 - config.tau_plus)
            terms.append(-torch.log(p / (p + corrected.clamp_min(len(e) * math.exp(-1 / tau)))))
    return torch.stack(terms).mean()


def naive_uniform(z: Tensor, config: AUCLConfig, owner: Sequence[int]) -> Tensor:
    pairs = [(a, b) for a, b in product(range(len(z)), repeat=2) if a != b]
    rivals = [(i, j) for i in range(N) for j in range(i) if owner[i] != owner[j]]
    align = torch.stack([(z[a, i] - z[b, i]).square().sum() for (a, b), i in product(pairs, range(N))]).mean()
    spread = [
        torch.stack([(-config.t * (view[i] - view[j]).square().sum()).exp() for i, j in rivals]).mean().log()
        for view in z
    ]
    return config.align_weight * align + config.uniform_weight * torch.stack(spread).mean()


CASES: dict[str, tuple[Any, Any, Callable[..., Tensor]]] = {
    "cacr": (CACR, CACRConfig(views=V, t_pos=0.7, t_neg=1.3), naive_cacr),
    "cl": (CL, CLConfig(views=V), naive_cl),
    "simclr": (SimCLR, SimCLRConfig(), naive_cl),
    "cmc-aug": (CMCAug, CMCAugConfig(views=V), naive_cmc),
    "hn-cl": (HNCL, HNCLConfig(views=V), naive_hard),
    "au-cl": (AUCL, AUCLConfig(views=V, align_weight=0.9, uniform_weight=1.2), naive_uniform),
    "pvc": (
        PVC,
        PVCConfig(mean="arithmetic"),
        lambda z, _, owner: pvc(z, temperature=0.1, mean="arithmetic", owner=torch.tensor(owner)),
    ),
    "mv-infonce": (
        MVInfoNCE,
        MVInfoNCEConfig(same_view=False),
        lambda z, _, owner: mv_infonce(z, temperature=0.1, same_view=False, owner=torch.tensor(owner)),
    ),
    "mv-dhel": (MVDHEL, MVDHELConfig(), lambda z, _, owner: mv_dhel(z, temperature=0.1, owner=torch.tensor(owner))),
}


def test_every_member_of_the_family_is_tried_here() -> None:
    assert {name for name in described() if issubclass(find(name), ManyViews)} == CASES.keys()


@pytest.mark.parametrize("company", ["other samples", "a stand-in", "groups"])
@pytest.mark.parametrize("name", CASES)
def test_a_step_is_its_equation(name: str, company: str) -> None:
    kind, config, naive = CASES[name]
    method, b, owner = make(kind, config), batch(config.views), [0, 1, 2, 3]
    if company == "a stand-in":  # two rows are the same sample
        owner = [0, 1, 1, 3]
        b = replace(b, index=torch.tensor(owner))
    if company == "groups":
        owner = [7, 5, 7, 6]
        method.know_groups(torch.tensor([*owner, *range(96)]))
    z = torch.stack([method.encoder(view) for view in b.images])
    metrics, expected = method.step(b), naive(z, config, owner)
    assert value(metrics["loss"]) == pytest.approx(value(expected), abs=1e-10)
    parameters = list(method.encoder.parameters())
    ours, theirs = (torch.autograd.grad(loss, parameters) for loss in (metrics["loss"], expected))
    for got, want in zip(ours, theirs, strict=True):
        assert torch.allclose(got, want, atol=1e-10)
    pairs = [(a, b) for a, b in product(range(len(z)), repeat=2) if a != b]
    positive = sum(value((z[a] * z[b]).sum(1).mean()) for a, b in pairs) / len(pairs)
    assert value(metrics["positive"]) == pytest.approx(positive, abs=1e-10)


def test_hard_negatives_without_hardness_and_bias_are_plain_contrast() -> None:
    plain = make(CL, CLConfig(temperature=0.5))
    hard = make(HNCL, HNCLConfig(beta=0.0, tau_plus=0.0))
    assert value(hard.step(batch(2))["loss"]) == pytest.approx(value(plain.step(batch(2))["loss"]), abs=1e-12)


def test_one_positive_has_all_the_weight() -> None:
    losses = [
        value(make(CACR, config).step(batch(2))["loss"])
        for config in (
            CACRConfig(views=2, t_pos=0.1),
            CACRConfig(views=2, t_pos=9.0, positive_weights="near"),
            CACRConfig(views=2, positive_weights="uniform"),
        )
    ]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: replace(c, cost="inner"),
        lambda c: replace(c, cost="rbf"),
        lambda c: replace(c, positive_weights="uniform"),
        lambda c: replace(c, negative_weights="uniform"),
        lambda c: replace(c, margin=1.0),
        lambda c: replace(c, t_pos=0.1),
        lambda c: replace(c, t_neg=0.1),
    ],
)
def test_every_flag_of_cacr_reaches_the_objective(change: Callable[[CACRConfig], CACRConfig]) -> None:
    config = CACRConfig(views=V)
    plain, changed = (value(make(CACR, each).step(batch(V))["loss"]) for each in (config, change(config)))
    assert abs(plain - changed) > 1e-6


def test_the_papers_values() -> None:
    """CACR, C.1 and C.2."""
    assert (CACRConfig().views, CACRConfig().t_pos, CACRConfig().t_neg) == (5, 1.0, 2.0)
    assert [CACR.on_small_sets(name, 2)["t_neg"] for name in ("cifar10", "cifar100", "stl10")] == [2.0, 3.0, 3.0]
    assert [CACR.on_small_sets(name, 5)["t_neg"] for name in ("cifar10", "cifar100", "stl10")] == [0.9, 2.0, 2.0]
    assert (CLConfig().temperature, CL.on_small_sets("cifar10", 2)) == (0.2, {"temperature": 0.19})
    assert (AUCLConfig().t, AUCLConfig().temperature) == (3.0, 0.2)
    assert AUCL.on_small_sets("stl10", 2) == {"t": 2.0, "temperature": 0.19}
    assert (HNCLConfig().temperature, HNCLConfig().beta, HNCLConfig().tau_plus) == (0.5, 1.0, 0.1)
    assert (CMCAugConfig().views, CMCAugConfig().temperature) == (5, 0.07)
    optim = CACR.paper.optim
    assert (optim.batch_size, optim.lr, optim.epochs, optim.schedule) == (256, 0.03, 200, "cosine")
