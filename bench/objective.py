"""Races of what needs no images: objectives and the momentum update, against the forms in which they came out."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from bench.lines import (
    BANK_DRAW,
    BANK_DRAWS,
    BANK_ENTRIES,
    CACR_IN_BATCH,
    CACR_OBJECTIVE,
    CACR_POSITIVES,
    IN_BATCH,
    JCL_OBJECTIVE,
    JCL_POSITIVES,
    MOMENTUM_UPDATE,
    OBJECTIVE_QUEUE,
    POSITIVES_DIM,
)
from bench.race import Race, timed
from bench.steps import BATCH, KEYS
from manyview.encoders import EncoderConfig, Momentum, build_encoder
from manyview.negatives import InBatch, MemoryBank
from manyview.objectives import cacr, jcl, similarity

THREADS = 2
TAU, LAM = 0.2, 4.0
T_POS, T_NEG = 1.0, 2.0
MOMENTUM = 0.999


class Sample(NamedTuple):
    """Unit vectors."""

    query: Tensor  # (N, D)
    keys: Tensor  # (N, M, D)
    queue: Tensor  # (K, D)


def races(quick: bool) -> Iterator[Race]:
    yield objective(4096 if quick else OBJECTIVE_QUEUE, quick)
    yield positives(256 if quick else POSITIVES_DIM, quick)
    yield with_a_queue(4096 if quick else OBJECTIVE_QUEUE, quick)
    yield in_the_batch(64 if quick else IN_BATCH, quick)
    yield drawn_from_a_bank(1000 if quick else BANK_ENTRIES, 64 if quick else BANK_DRAW, quick)
    yield momentum(quick)


def sample(dim: int, queue: int) -> Sample:
    torch.manual_seed(0)
    query, keys, negatives = (
        normalize(torch.randn(shape), dim=-1) for shape in ((BATCH, dim), (BATCH, KEYS, dim), (queue, dim))
    )
    return Sample(query.requires_grad_(), keys, negatives)


def released_positives(query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """q·μ/τ and λ/2τ² qᵀΣq, each (N, 1), by the covariance matrix of every sample."""
    mean = keys.mean(1, keepdim=True)
    centred = keys - mean
    covariance = torch.bmm(centred.mT, centred) / keys.shape[1]  # (N, D, D)
    near = torch.bmm(mean, query.unsqueeze(2)).squeeze(2) / TAU
    spread = torch.bmm(torch.bmm(query.unsqueeze(1), covariance), query.unsqueeze(2)).squeeze(2)
    return near, spread * LAM / (2 * TAU**2)


def objective(queue: int, quick: bool) -> Race:
    query, keys, negatives = sample(128, queue)

    def ours() -> Tensor:
        loss = jcl(similarity(query, keys), similarity(query, negatives), temperature=TAU, lam=LAM)
        return torch.autograd.grad(loss, query)[0]

    def released() -> Tensor:
        near, spread = released_positives(query, keys)
        logits = torch.cat([near + spread, query @ negatives.clone().T / TAU], 1)
        loss = cross_entropy(logits, torch.zeros(BATCH, dtype=torch.long)) + spread.mean()
        return torch.autograd.grad(loss, query)[0]

    torch.testing.assert_close(ours(), released(), rtol=1e-3, atol=1e-5)
    return Race(
        {"manyview": timed(ours), "released formula": timed(released)},
        (JCL_OBJECTIVE,),
        THREADS,
        repeats=5 if quick else 9,
        allocates={"manyview": ours, "released formula": released},
    )


def positives(dim: int, quick: bool) -> Race:
    query, keys, _ = sample(dim, 1)

    def ours() -> Tensor:
        scores = similarity(query, keys)
        near, spread = scores.mean(1) / TAU, scores.var(1, correction=0) * LAM / (2 * TAU**2)
        return torch.autograd.grad((near + spread).sum(), query)[0]

    def released() -> Tensor:
        near, spread = released_positives(query, keys)
        return torch.autograd.grad((near + spread).sum(), query)[0]

    torch.testing.assert_close(ours(), released(), rtol=1e-3, atol=1e-3)
    return Race(
        {"manyview": timed(ours), "released formula": timed(released)},
        (JCL_POSITIVES,),
        THREADS,
        repeats=5,
        allocates={"manyview": ours, "released formula": released},
    )


def with_a_queue(queue: int, quick: bool) -> Race:
    """Both start before the normalisation: after it gradients of dot products and of differences differ radially."""
    raw, keys, negatives = sample(128, queue)
    keys = keys[:, :CACR_POSITIVES]

    def ours() -> Tensor:
        query = normalize(raw, dim=1)
        loss = cacr(
            similarity(query, keys),
            similarity(query, negatives),
            t_pos=T_POS,
            t_neg=T_NEG,
            detach_positive_weights=True,
        )
        return torch.autograd.grad(loss, raw)[0]

    def printed() -> Tensor:
        query = normalize(raw, dim=1)
        near = (query - keys.transpose(0, 1)).norm(p=2, dim=-1).pow(2).transpose(1, 0)
        with torch.no_grad():
            pull = torch.softmax(near.mul(T_POS), dim=1)
        far = 2 - 2 * torch.mm(query, negatives.T)
        push = torch.softmax(far.mul(-T_NEG), dim=1)
        loss = (near * pull).sum(1).mean() + (far.mul(-1.0) * push).sum(1).mean()
        return torch.autograd.grad(loss, raw)[0]

    torch.testing.assert_close(ours(), printed(), rtol=1e-3, atol=1e-5)
    return Race(
        {"manyview": timed(ours), "Algorithm 3": timed(printed)},
        (CACR_OBJECTIVE,),
        THREADS,
        repeats=5 if quick else 9,
        allocates={"manyview": ours, "Algorithm 3": printed},
    )


def in_the_batch(samples: int, quick: bool) -> Race:
    torch.manual_seed(0)
    raw = torch.randn(2, samples, 128).requires_grad_()
    different = ~torch.eye(samples, dtype=torch.bool)

    def ours() -> Tensor:
        views = normalize(raw, dim=2)
        loss = cacr(
            similarity(views[0], views[1].unsqueeze(1)),
            InBatch("same").similarity(views[0], views, view=0),
            t_pos=T_POS,
            t_neg=T_NEG,
        )
        return torch.autograd.grad(loss, raw)[0]

    def differences() -> Tensor:
        views = normalize(raw, dim=2)
        near = (views[0] - views[1]).norm(p=2, dim=-1).pow(2)  # the weight of a single positive is 1
        far = (views[0][:, None] - views[0]).norm(p=2, dim=-1).pow(2)[different].view(samples, samples - 1)
        push = torch.softmax(far.mul(-T_NEG), dim=1)
        loss = near.mean() + (far.mul(-1.0) * push).sum(1).mean()
        return torch.autograd.grad(loss, raw)[0]

    torch.testing.assert_close(ours(), differences(), rtol=1e-3, atol=1e-5)
    return Race(
        {"manyview": timed(ours), "differences": timed(differences)},
        (CACR_IN_BATCH,),
        THREADS,
        repeats=5 if quick else 9,
    )


def drawn_from_a_bank(entries: int, draw: int, quick: bool) -> Race:
    """A sum of squares takes the place of an objective."""
    query, _, _ = sample(128, 1)
    bank, index = MemoryBank(entries, 128, momentum=0.5, draw=draw), torch.arange(BATCH)

    def ours() -> Tensor:
        scores = bank.similarity(query, index, seed=0, step=0)
        return torch.autograd.grad(scores.square().sum(), query)[0]

    def gathered() -> Tensor:
        rows = bank.entries[bank.drawn(index, seed=0, step=0)]  # (N, m, D)
        scores = torch.bmm(rows, query.unsqueeze(2)).squeeze(2)
        return torch.autograd.grad(scores.square().sum(), query)[0]

    torch.testing.assert_close(ours(), gathered(), rtol=1e-3, atol=1e-3)
    return Race(
        {"manyview": timed(ours), "gathered rows": timed(gathered)},
        (BANK_DRAWS,),
        THREADS,
        repeats=5,
        allocates={"manyview": ours, "gathered rows": gathered},
    )


def momentum(quick: bool) -> Race:
    encoder = build_encoder(EncoderConfig(backbone="resnet18" if quick else "resnet50"))
    keys = Momentum(encoder, MOMENTUM)
    copy = Momentum(encoder, MOMENTUM).encoder
    times = 1 if quick else 10

    def ours() -> None:
        for _ in range(times):
            keys.update(encoder)

    def released() -> None:
        for _ in range(times):
            for key, query in zip(copy.parameters(), encoder.parameters(), strict=True):
                key.data = key.data * MOMENTUM + query.data * (1.0 - MOMENTUM)

    return Race(
        {"manyview": timed(ours), "MoCo's loop": timed(released)},
        (MOMENTUM_UPDATE,),
        THREADS,
        repeats=5 if quick else 15,
        facts={"updates_per_repeat": times},
    )
