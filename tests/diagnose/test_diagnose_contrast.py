"""The numbers of contrast, against loops written from their definitions and against closed forms."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.diagnose.contrast import CONTRAST, contrast
from manyview.diagnose.embeddings import alignment, effective_rank, uniformity

V, N, D = 4, 7, 5
T_POS, T_NEG = 0.7, 1.6


@pytest.fixture
def views() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return F.normalize(torch.randn(V, N, D, dtype=torch.float64, generator=generator), dim=-1)


def squared(x: Tensor, y: Tensor) -> float:
    return float((x - y).square().sum())


def weights(query: Tensor, others: list[Tensor], t: float) -> list[float]:
    """π ∝ e^{t‖x−y‖²}, with distances taken between vectors."""
    terms = [math.exp(t * squared(query, other)) for other in others]
    return [term / sum(terms) for term in terms]


def entropy(weights: list[float]) -> float:
    return -sum(weight * math.log(weight) for weight in weights)


def queries(views: Tensor) -> list[tuple[list[float], list[float]]]:
    """The weights of the positives and of the negatives of every view of every sample."""
    count, samples, _ = views.shape
    return [
        (
            weights(views[a, n], [views[b, n] for b in range(count) if b != a], T_POS),
            weights(views[a, n], [views[a, m] for m in range(samples) if m != n], -T_NEG),
        )
        for a in range(count)
        for n in range(samples)
    ]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_every_number_is_its_definition(views: Tensor) -> None:
    found = contrast(views, t_pos=T_POS, t_neg=T_NEG)
    weighed = queries(views)
    close = [squared(views[a, n], views[b, n]) for n in range(N) for a in range(V) for b in range(a)]
    apart = [[squared(view[n], view[m]) for n in range(N) for m in range(n)] for view in views]
    expected = {
        "entropy": mean([entropy(negative) for _, negative in weighed]),
        "max_entropy": math.log(N - 1),
        "nearest_weight": mean([max(negative) for _, negative in weighed]),
        "effective_positives": mean([math.exp(entropy(positive)) for positive, _ in weighed]),
        "effective_negatives": mean([math.exp(entropy(negative)) for _, negative in weighed]),
        "alignment": mean(close),
        "variance": mean([squared(z, view.mean(0)) for view in views for z in view]),
        "effective_rank": mean([effective_rank(view) for view in views]),
        "uniformity": mean([math.log(mean([math.exp(-2 * each) for each in distances])) for distances in apart]),
    }
    assert found == pytest.approx(expected, rel=1e-12)
    assert tuple(found) == CONTRAST


def test_far_positives_and_near_negatives_weigh_most() -> None:
    east, north, west = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    near, far = torch.stack([east, east, west]), torch.stack([east, west, west])
    views = torch.stack([near, far])  # of three samples; the second one's views are opposite
    sharp = contrast(views, t_pos=200.0, t_neg=200.0)
    # In the first view two samples coincide and are each other's only negative that counts; the third sees both as one.
    assert sharp["nearest_weight"] == pytest.approx((1 + 1 + 0.5 + 0.5 + 1 + 1) / 6)
    assert sharp["effective_negatives"] == pytest.approx((1 + 1 + 2 + 2 + 1 + 1) / 6)
    three = torch.stack([east, north, west])[:, None].expand(3, 2, 2)  # views of one sample, twice
    # The first and the last view see only each other; the middle one sees both as far.
    assert contrast(three, t_pos=200.0, t_neg=1.0)["effective_positives"] == pytest.approx((1 + 2 + 1) / 3)


def test_equal_distances_give_equal_weights() -> None:
    views = torch.eye(6, dtype=torch.float64).expand(3, 6, 6)  # orthogonal samples, identical views
    found = contrast(views, t_pos=1.0, t_neg=2.0)
    assert found["entropy"] == pytest.approx(found["max_entropy"]) == pytest.approx(math.log(5))
    assert found["nearest_weight"] == pytest.approx(1 / 5)
    assert found["effective_negatives"] == pytest.approx(5)
    assert found["effective_positives"] == pytest.approx(2)
    assert found["alignment"] == 0
    assert found["uniformity"] == pytest.approx(-4)
    assert (found["variance"], found["effective_rank"]) == pytest.approx((5 / 6, 5))


def test_a_collapsed_encoder_has_no_variance_and_one_direction(views: Tensor) -> None:
    point = contrast(views[:1, :1].expand(V, N, D), t_pos=1.0, t_neg=2.0)
    assert (point["variance"], point["effective_rank"]) == pytest.approx((0, 1))
    east = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    line = torch.stack([east, -east, east, -east]).expand(V, 4, 3)
    ends = contrast(line, t_pos=1.0, t_neg=2.0)
    assert (ends["variance"], ends["effective_rank"]) == pytest.approx((1, 1))


def test_two_samples_and_two_views_are_enough(views: Tensor) -> None:
    found = contrast(views[:2, :2], t_pos=1.0, t_neg=2.0)
    assert (found["entropy"], found["max_entropy"], found["nearest_weight"]) == pytest.approx((0, 0, 1))
    assert (found["effective_positives"], found["effective_negatives"]) == pytest.approx((1, 1))


def test_alignment_and_uniformity_are_those_of_the_functions(views: Tensor) -> None:
    found = contrast(views, t_pos=T_POS, t_neg=T_NEG)
    assert found["alignment"] == alignment(views)
    assert found["uniformity"] == pytest.approx(mean([uniformity(view) for view in views]))
