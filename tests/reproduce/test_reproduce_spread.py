"""Similarity and variance of an image's views, against loops."""

import pytest
import torch
from torch.nn.functional import normalize

from manyview.reproduce.looks import samples, similarity_and_variance, two_sample


def test_similarity_and_variance_are_those_of_the_paper() -> None:
    views = normalize(torch.randn(5, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=-1)
    similarity, variance = similarity_and_variance(views)
    for image in range(3):
        cosines = [float(a @ b) for a in views[:, image] for b in views[:, image]]
        centred = views[:, image] - views[:, image].mean(0)
        covariance = centred.T @ centred / 5
        assert float(similarity[image]) == pytest.approx(sum(cosines) / 25, abs=1e-12)
        assert float(variance[image]) == pytest.approx(float(covariance.diag().mean()), abs=1e-12)
    torch.testing.assert_close(variance, (1 - similarity) / 7)  # as the recipe says of unit features


def test_counts_become_samples_again() -> None:
    rows = [{"low": "0.5", "step": "0.1", "count": "2"}, {"low": "0.6", "step": "0.1", "count": "1"}]
    torch.testing.assert_close(samples(rows), torch.tensor([0.55, 0.55, 0.65]))


def test_two_samples_that_part_and_two_that_are_one() -> None:
    low, high = torch.linspace(0, 1, 50), torch.linspace(2, 3, 50)
    assert two_sample(high, low) == (1.0, 1.0)
    assert two_sample(low, low) == (0.0, 0.5)
