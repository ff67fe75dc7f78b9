"""Numbers of embeddings, against loops written from their definitions and against closed forms."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.diagnose.embeddings import (
    alignment,
    different_similarity,
    effective_rank,
    nearest,
    positive_similarity,
    separation,
    uniformity,
    variance,
)

V, N, D = 4, 7, 5


@pytest.fixture
def views() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return F.normalize(torch.randn(V, N, D, dtype=torch.float64, generator=generator), dim=-1)


def test_positive_similarity_is_the_mean_over_pairs_of_views(views: Tensor) -> None:
    for n, found in enumerate(positive_similarity(views).tolist()):
        pairs = [float(views[a, n] @ views[b, n]) for a in range(V) for b in range(a)]
        assert found == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


def test_identical_views_have_similarity_one(views: Tensor) -> None:
    assert torch.allclose(positive_similarity(views[:1].expand(3, -1, -1)), torch.ones(N, dtype=torch.float64))


def test_different_similarity_is_the_mean_over_views_of_each_two_samples(views: Tensor) -> None:
    naive = [
        sum(float(views[a, i] @ views[b, j]) for a in range(V) for b in range(V)) / V**2
        for i in range(N)
        for j in range(i + 1, N)
    ]
    assert different_similarity(views).tolist() == pytest.approx(naive, abs=1e-12)


def test_separation_counts_the_ordered_pairs() -> None:
    positive, different = torch.tensor([0.9, 0.5, 0.5, 0.1]), torch.tensor([0.5, 0.3, 0.95])
    naive = sum(float(p > d) + 0.5 * float(p == d) for p in positive for d in different) / 12
    assert separation(positive, different) == pytest.approx(naive)
    assert separation(positive + 1, different) == 1
    assert separation(different, different) == 0.5


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_alignment_is_the_mean_power_of_distances(views: Tensor, alpha: float) -> None:
    distances = [
        float((views[a, n] - views[b, n]).norm()) ** alpha for n in range(N) for a in range(V) for b in range(a)
    ]
    assert alignment(views, alpha) == pytest.approx(sum(distances) / len(distances))


def test_squared_alignment_follows_from_the_similarities(views: Tensor) -> None:
    assert alignment(views) == pytest.approx(float(2 - 2 * positive_similarity(views).mean()))


def test_uniformity_is_the_log_mean_of_gaussians(views: Tensor) -> None:
    z = views[0]
    terms = [math.exp(-2 * float((z[i] - z[j]).square().sum())) for i in range(N) for j in range(i)]
    assert uniformity(z) == pytest.approx(math.log(sum(terms) / len(terms)))


def test_uniformity_of_one_point_is_zero_and_of_opposites_is_least() -> None:
    point = F.normalize(torch.ones(3, 4), dim=1)
    assert uniformity(point) == pytest.approx(0, abs=1e-6)
    assert uniformity(torch.stack([point[0], -point[0]])) == pytest.approx(-8, rel=1e-6)


def test_effective_rank_counts_directions() -> None:
    cross = torch.cat([torch.eye(6), -torch.eye(6)])
    assert effective_rank(cross) == pytest.approx(6)
    assert effective_rank(cross[:, :1]) == pytest.approx(1)
    assert effective_rank(torch.ones(5, 3)) == pytest.approx(1)


def test_effective_rank_ignores_a_common_shift(views: Tensor) -> None:
    assert effective_rank(views[0] + 10) == pytest.approx(effective_rank(views[0]))


def test_nearest_agrees_with_a_sort(views: Tensor) -> None:
    query, bank = views[0], views[1]
    cosines, rows = nearest(query, bank, 3)
    for q in range(N):
        naive = sorted(range(N), key=lambda r: -float(query[q] @ bank[r]))[:3]
        assert rows[q].tolist() == naive
        assert cosines[q].tolist() == pytest.approx([float(query[q] @ bank[r]) for r in naive])


def test_a_sample_is_not_its_own_neighbour(views: Tensor) -> None:
    bank = views[0]
    cosines, rows = nearest(bank, bank, 100, exclude=torch.arange(N))
    assert rows.shape == (N, N - 1)
    assert not (rows == torch.arange(N)[:, None]).any()
    assert torch.isfinite(cosines).all()


def test_of_equal_neighbours_the_lower_row_comes_first() -> None:
    bank = F.normalize(torch.ones(6, 2), dim=1)
    assert nearest(bank[:1], bank, 4)[1].tolist() == [[0, 1, 2, 3]]


def test_variance_of_unit_vectors_is_what_their_mean_lacks(views: Tensor) -> None:
    for view in views:
        assert variance(view) == pytest.approx(1 - float(view.mean(0).square().sum()), abs=1e-12)
    assert variance(views[0, :1].expand(N, D)) == pytest.approx(0, abs=1e-30)
