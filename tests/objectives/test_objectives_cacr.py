"""CACR against naive float64 loops written from its equations, its limits, and Property 1 and Lemmas 4.1 to 4.3."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
import torch
from drawn import draw_views, embeddings, matrices
from memory import peak_memory
from torch import Tensor
from torch.nn.functional import normalize

from manyview.objectives import (
    attraction,
    cacr,
    conditional_entropy,
    max_conditional_entropy,
    mutual_information,
    repulsion,
    similarity,
)

T_POS, T_NEG = 1.0, 2.0
Weights = Literal["far", "near", "uniform"]
Cost = Literal["euclidean", "inner"]
SIGNS: dict[Weights, int] = {"far": 1, "near": -1, "uniform": 0}
COSTS: dict[Cost, Callable[[Tensor, Tensor], float]] = {
    "euclidean": lambda x, y: float((x - y).square().sum()),
    "inner": lambda x, y: -float(x @ y),
}


def naive_weights(query: Tensor, others: Tensor, t: float, weights: Weights) -> list[float]:
    terms = [math.exp(SIGNS[weights] * t * COSTS["euclidean"](query, other)) for other in others]
    return [term / sum(terms) for term in terms]


def naive_expected_cost(query: Tensor, others: Tensor, t: float, weights: Weights, cost: Cost) -> float:
    shares = naive_weights(query, others, t, weights)
    return sum(share * COSTS[cost](query, other) for share, other in zip(shares, others, strict=True))


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("positive_weights", SIGNS)
@pytest.mark.parametrize("negative_weights", SIGNS)
def test_cacr_equals_the_loop(cost: Cost, positive_weights: Weights, negative_weights: Weights) -> None:
    q, keys, negatives = embeddings()
    got = cacr(
        similarity(q, keys),
        similarity(q, negatives),
        t_pos=T_POS,
        t_neg=T_NEG,
        cost=cost,
        positive_weights=positive_weights,
        negative_weights=negative_weights,
        reduction="none",
    )
    for i in range(len(q)):
        expected = naive_expected_cost(q[i], keys[i], T_POS, positive_weights, cost)
        expected -= naive_expected_cost(q[i], negatives, T_NEG, negative_weights, cost)
        assert float(got[i]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("negative_weights", SIGNS)
def test_the_rbf_form_equals_the_loop_of_equation_14(negative_weights: Weights) -> None:
    q, keys, negatives = embeddings()
    t, total = 1.5, 0.0
    for i in range(len(q)):
        shares = naive_weights(q[i], negatives, T_NEG, negative_weights)
        for share, negative in zip(shares, negatives, strict=True):
            total += share * math.exp(-t * COSTS["euclidean"](q[i], negative)) / len(q)
    attracted = sum(naive_expected_cost(q[i], keys[i], T_POS, "far", "euclidean") for i in range(len(q))) / len(q)
    got = cacr(
        similarity(q, keys),
        similarity(q, negatives),
        t_pos=T_POS,
        t_neg=T_NEG,
        cost="rbf",
        rbf_t=t,
        negative_weights=negative_weights,
    )
    assert float(got) == pytest.approx(attracted + math.log(total), abs=1e-10)


def test_the_rbf_mean_runs_over_the_queries_that_have_negatives() -> None:
    _, negatives = matrices()
    hidden = negatives.clone()
    hidden[2] = -torch.inf
    others = negatives[[0, 1, 3, 4, 5]]
    a, b = (repulsion(n, t_neg=T_NEG, cost="rbf") for n in (hidden, others))
    assert float(a) == pytest.approx(float(b), abs=1e-12)


def test_cacr_is_attraction_and_repulsion() -> None:
    positives, negatives = matrices()
    whole = cacr(positives, negatives, t_pos=T_POS, t_neg=T_NEG)
    parts = attraction(positives, t_pos=T_POS) + repulsion(negatives, t_neg=T_NEG)
    assert torch.allclose(whole, parts, atol=1e-12)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("detach", [False, True])
def test_gradients_equal_those_of_the_distances_between_vectors(cost: Cost, detach: bool) -> None:
    """With respect to the embeddings before they are normalised: on the sphere the two forms differ radially."""
    raw = [(x * 3).requires_grad_() for x in embeddings()]

    def by_similarities(q: Tensor, keys: Tensor, negatives: Tensor) -> Tensor:
        scores = similarity(q, keys), similarity(q, negatives)
        return cacr(*scores, t_pos=T_POS, t_neg=T_NEG, cost=cost, detach_positive_weights=detach)

    def by_distances(q: Tensor, keys: Tensor, negatives: Tensor) -> Tensor:
        near, far = (q[:, None] - keys).square().sum(2), (q[:, None] - negatives).square().sum(2)
        pull, push = (T_POS * near).softmax(1), (-T_NEG * far).softmax(1)
        pull = pull.detach() if detach else pull
        if cost == "inner":
            near, far = -(q[:, None] * keys).sum(2), -(q[:, None] * negatives).sum(2)
        return ((pull * near).sum(1) - (push * far).sum(1)).mean()

    ours, theirs = (
        torch.autograd.grad(form(*(normalize(x, dim=-1) for x in raw)), raw) for form in (by_similarities, by_distances)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() < 1e-10


def test_a_single_positive_has_weight_one() -> None:
    positives, _ = matrices()
    one = positives[:, :1]
    for t in (0.0, 1.0, 50.0):
        assert torch.allclose(attraction(one, t_pos=t, reduction="none"), 2 - 2 * one[:, 0], atol=1e-12)


def test_small_temperatures_and_uniform_weights_are_uaur() -> None:
    """Eq. 11."""
    positives, negatives = matrices()
    expected = (2 - 2 * positives).mean(1) - (2 - 2 * negatives).mean(1)
    uaur = cacr(
        positives,
        negatives,
        t_pos=T_POS,
        t_neg=T_NEG,
        positive_weights="uniform",
        negative_weights="uniform",
        reduction="none",
    )
    limit = cacr(positives, negatives, t_pos=1e-13, t_neg=1e-13, reduction="none")
    for got in (uaur, limit, cacr(positives, negatives, t_pos=0.0, t_neg=0.0, reduction="none")):
        assert torch.allclose(got, expected, atol=1e-10)


@pytest.mark.parametrize("margin", [-0.5, 0.0, 0.4])
def test_large_temperatures_are_the_hard_mined_triplet(margin: float) -> None:
    """App. B.5, with a margin at which some queries are clipped and others are not."""
    positives, negatives = matrices()
    cost = (2 - 2 * positives).amax(1) - (2 - 2 * negatives).amin(1) + margin
    got = cacr(positives, negatives, t_pos=1e5, t_neg=1e5, margin=margin, reduction="none")
    assert torch.allclose(got, cost.clamp_min(0.0), atol=1e-10)


def test_the_margin_with_uniform_weights_of_single_pairs_is_the_triplet_loss() -> None:
    positives, negatives = matrices()
    one, other = positives[:, :1], negatives[:, :1]
    got = cacr(
        one,
        other,
        t_pos=T_POS,
        t_neg=T_NEG,
        positive_weights="uniform",
        negative_weights="uniform",
        margin=0.3,
        reduction="none",
    )
    assert torch.allclose(got, (2 * (other - one)[:, 0] + 0.3).clamp_min(0.0), atol=1e-12)


def test_the_margin_clips_each_query_before_the_mean() -> None:
    positives, negatives = matrices()
    each = cacr(positives, negatives, t_pos=T_POS, t_neg=T_NEG, reduction="none")
    margin = -float(each.median())
    clipped = cacr(positives, negatives, t_pos=T_POS, t_neg=T_NEG, margin=margin)
    assert float(clipped) == pytest.approx(float((each + margin).clamp_min(0.0).mean()), abs=1e-12)


def test_conditional_entropy_and_mutual_information_equal_the_loops() -> None:
    q, _, negatives = embeddings()
    scores = similarity(q, negatives)
    entropies, informations = [], []
    for i in range(len(q)):
        shares = naive_weights(q[i], negatives, T_NEG, "near")
        entropies.append(-sum(share * math.log(share) for share in shares))
        informations.append(sum(share * math.log(share * len(negatives)) for share in shares))
    assert conditional_entropy(scores, t_neg=T_NEG).tolist() == pytest.approx(entropies, abs=1e-10)
    each = mutual_information(scores, t_neg=T_NEG, reduction="none")
    assert each.tolist() == pytest.approx(informations, abs=1e-10)
    assert float(mutual_information(scores, t_neg=T_NEG)) == pytest.approx(float(each.mean()), abs=1e-12)


def test_equal_distances_give_the_largest_entropy_and_no_information() -> None:
    scores = torch.full((3, 8), 0.3, dtype=torch.float64)
    scores[1, 2:5], scores[2] = -torch.inf, -torch.inf
    largest = [math.log(8), math.log(5), 0.0]
    assert max_conditional_entropy(scores).tolist() == pytest.approx(largest, abs=1e-12)
    assert conditional_entropy(scores, t_neg=T_NEG).tolist() == pytest.approx(largest, abs=1e-12)
    assert mutual_information(scores, t_neg=T_NEG, reduction="none").abs().max() < 1e-12
    _, unequal = matrices()
    assert (conditional_entropy(unequal, t_neg=T_NEG) < max_conditional_entropy(unequal)).all()


def test_property_1_attraction_vanishes_only_where_all_positives_meet_the_query() -> None:
    together = torch.ones(3, 4, dtype=torch.float64)
    assert float(attraction(together, t_pos=T_POS)) == 0.0
    for m in range(4):
        apart = together.clone()
        apart[1, m] = 0.99
        each = attraction(apart, t_pos=T_POS, reduction="none")
        assert float(each[1]) > 0
        assert each[[0, 2]].tolist() == [0.0, 0.0]


def test_lemma_4_1_attraction_is_alignment_with_density_ratios() -> None:
    positives, _ = matrices()
    ratio = (-2 * T_POS * positives).softmax(1) * positives.shape[1]  # π⁺/p with p = 1/M
    rewritten = (-positives * ratio).mean(1)
    each = attraction(positives, t_pos=T_POS, cost="inner", reduction="none")
    assert torch.allclose(each, rewritten, atol=1e-12)
    alignment = -positives.mean(1)
    uniform = attraction(positives, t_pos=T_POS, cost="inner", weights="uniform", reduction="none")
    assert torch.allclose(uniform, alignment, atol=1e-12)
    assert (each > alignment).all()  # the weights are not uniform here, and lean to the larger costs
    same = positives[:, :1].expand(-1, 4)
    assert torch.allclose(attraction(same, t_pos=T_POS, cost="inner", reduction="none"), -same[:, 0], atol=1e-12)


def test_lemma_4_2_repulsion_is_information_and_the_log_of_the_normaliser() -> None:
    """Eq. 9 with c = d: E_π[-d] = E_π[ln π - ln p + ln Z]."""
    _, negatives = matrices()
    log_z = (-(2 - 2 * negatives)).exp().mean(1).log()
    information = mutual_information(negatives, t_neg=1.0, reduction="none")
    assert torch.allclose(repulsion(negatives, t_neg=1.0, reduction="none"), information + log_z, atol=1e-12)


def trained() -> Iterator[Tensor]:
    """In-batch similarities of a linear encoder while it learns by CACR from noisy views of 32 vectors."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    data, weight = draw(32, 10) + 2.0, draw(10, 3).requires_grad_()  # the common offset crowds the embeddings at first
    for step in range(101):
        views = normalize((data + 0.1 * draw(4, 32, 10)) @ weight, dim=-1)
        scores = similarity(views[0], views[0]).masked_fill(torch.eye(32, dtype=torch.bool), -torch.inf)
        if step % 25 == 0:
            yield scores.detach()
        loss = cacr(similarity(views[0], views[1:].transpose(0, 1)), scores, t_pos=T_POS, t_neg=T_NEG)
        weight.data -= 0.5 * torch.autograd.grad(loss, weight)[0]


def test_lemma_4_2_repulsion_is_least_where_all_negatives_are_equally_far_and_know_nothing() -> None:
    """Five free points repel each other in four dimensions until they are a regular simplex."""
    points = draw_views(1, 5, dim=4)[0].requires_grad_()

    def scores() -> Tensor:
        z = normalize(points, dim=-1)
        return similarity(z, z).masked_fill(torch.eye(5, dtype=torch.bool), -torch.inf)

    before = mutual_information(scores(), t_neg=T_NEG).detach()
    for _ in range(600):
        points.data -= 0.5 * torch.autograd.grad(repulsion(scores(), t_neg=T_NEG), points)[0]
    assert float(before) > 0.05
    assert float(mutual_information(scores(), t_neg=T_NEG).detach()) < 1e-6
    entropy = conditional_entropy(scores(), t_neg=T_NEG).detach()
    assert torch.allclose(entropy, torch.full_like(entropy, math.log(4)), atol=1e-6)
    assert float(repulsion(scores(), t_neg=T_NEG).detach()) == pytest.approx(-(2 + 2 / 4), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.07, 0.19, 1.0])
@pytest.mark.parametrize("t_neg", [0.5, 2.0, 20.0])
def test_lemma_4_3_uniformity_and_information_bound_repulsion(temperature: float, t_neg: float) -> None:
    """For random embeddings and while they learn; L_CR has the inner cost over τ."""
    random = matrices()[1]
    for scores in (random, *trained()):
        counts = (scores > -torch.inf).sum(1).double()
        uniformity = ((scores / temperature).logsumexp(1) - counts.log()).mean()
        bound = uniformity + mutual_information(scores, t_neg=t_neg)
        assert float(bound - repulsion(scores, t_neg=t_neg, cost="inner") / temperature) > -1e-12


def test_lemma_4_3_is_tight_where_the_weights_are_those_of_info_nce() -> None:
    """π⁻ ∝ p·e^{s/τ}, that is t⁻ = 1/2τ, makes Jensen's inequality an equality."""
    _, negatives = matrices()
    temperature = 0.2
    uniformity = ((negatives / temperature).logsumexp(1) - math.log(negatives.shape[1])).mean()
    t_neg = 1 / (2 * temperature)
    bound = uniformity + mutual_information(negatives, t_neg=t_neg)
    tight = repulsion(negatives, t_neg=t_neg, cost="inner") / temperature
    assert float(bound) == pytest.approx(float(tight), abs=1e-10)


def test_forms_that_do_not_exist_are_refused() -> None:
    positives, negatives = matrices()
    with pytest.raises(ValueError, match="one number for all queries"):
        cacr(positives, negatives, t_pos=T_POS, t_neg=T_NEG, cost="rbf", reduction="none")
    with pytest.raises(ValueError, match="one number for all queries"):
        cacr(positives, negatives, t_pos=T_POS, t_neg=T_NEG, cost="rbf", margin=0.1)
    with pytest.raises(ValueError, match="one number for all queries"):
        repulsion(negatives, t_neg=T_NEG, cost="rbf", reduction="none")
    with pytest.raises(ValueError, match="cost is"):
        cacr(positives, negatives, t_pos=T_POS, t_neg=T_NEG, cost="cosine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weights are"):
        cacr(positives, negatives, t_pos=T_POS, t_neg=T_NEG, positive_weights="hard")  # type: ignore[arg-type]


def algorithm_3(raw: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """Line by line for one batch of queries, with the variables that are alive in the backward pass; `keys` (M, N, D),
    `queue` (D, K)."""
    query = normalize(raw, dim=-1)
    cost_for_pos = (query - keys).norm(p=2, dim=-1).pow(2).transpose(1, 0)
    with torch.no_grad():
        weights_for_pos = torch.softmax(cost_for_pos.mul(T_POS), dim=1)
    loss_pos = (cost_for_pos * weights_for_pos).sum(1).mean()
    sq_dists = 2 - 2 * torch.mm(query, queue)
    weights_for_neg = torch.softmax(sq_dists.mul(-T_NEG), dim=1)
    loss_neg = (sq_dists.mul(-1.0) * weights_for_neg).sum(1).mean()
    return torch.autograd.grad(loss_pos + loss_neg, raw)[0]


def test_cacr_is_algorithm_3_in_half_its_memory() -> None:
    raw = torch.randn(128, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    keys, queue = (draw_views(*shape, dim=32).float() for shape in ((4, 128), (1, 16_384)))

    def ours() -> Tensor:
        query = normalize(raw, dim=-1)
        scores = similarity(query, keys.transpose(0, 1)), similarity(query, queue[0])
        loss = cacr(*scores, t_pos=T_POS, t_neg=T_NEG, detach_positive_weights=True)
        return torch.autograd.grad(loss, raw)[0]

    def printed() -> Tensor:
        return algorithm_3(raw, keys, queue[0].T)

    assert torch.allclose(ours(), printed(), atol=1e-7)
    assert peak_memory(ours) <= 0.5 * peak_memory(printed)
