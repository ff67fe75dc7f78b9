"""Races of what needs no images: JCL's objective and the momentum update, against the forms in which they came out."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from bench.lines import JCL_OBJECTIVE, JCL_POSITIVES, MOMENTUM_UPDATE, OBJECTIVE_QUEUE, POSITIVES_DIM
from bench.race import Race, timed
from bench.steps import BATCH, KEYS
from manyview.encoders import EncoderConfig, Momentum, build_encoder
from manyview.objectives import jcl, similarity

__all__ = ["races"]

THREADS = 2
TAU, LAM = 0.2, 4.0
MOMENTUM = 0.999


class Sample(NamedTuple):
    """Unit vectors."""

    query: Tensor  # (N, D)
    keys: Tensor  # (N, M, D)
    queue: Tensor  # (K, D)


def races(quick: bool) -> Iterator[Race]:
    yield objective(4096 if quick else OBJECTIVE_QUEUE, quick)
    yield positives(256 if quick else POSITIVES_DIM, quick)
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
