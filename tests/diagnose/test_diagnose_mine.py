"""MINE on pairs whose mutual information is known."""

import math

import pytest
import torch
from torch import Tensor

from manyview.diagnose.mine import estimate_mutual_information


def gaussians(rho: float, n: int, dim: int) -> tuple[Tensor, Tensor]:
    """Correlated in each dimension: I = -½ log(1 - ρ²) per dimension."""
    x, noise = torch.randn(2, n, dim, generator=torch.Generator().manual_seed(0))
    return x, rho * x + math.sqrt(1 - rho**2) * noise


@pytest.mark.parametrize(("rho", "dim", "tolerance"), [(0.0, 2, 0.03), (0.5, 2, 0.08), (0.9, 1, 0.1), (0.8, 2, 0.12)])
def test_gaussians_have_their_information(rho: float, dim: int, tolerance: float) -> None:
    """A bound from below, with the noise of 1000 samples held out."""
    x, y = gaussians(rho, 4000, dim)
    known = -0.5 * dim * math.log(1 - rho**2)
    got = estimate_mutual_information(x, y, seed=0, steps=500, hidden=64)
    assert known - tolerance < got < known + 0.04


def test_dependence_without_correlation_is_seen() -> None:
    """The product of two fair signs is known from both, 1 bit, and uncorrelated with each."""
    signs = torch.randint(0, 2, (3000, 2), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    got = estimate_mutual_information(signs, signs.prod(1, keepdim=True), seed=0, steps=300, hidden=32)
    assert got == pytest.approx(math.log(2), abs=0.05)


def test_memorised_pairs_are_no_information() -> None:
    """A critic tells 150 pairs in 20 dimensions apart by heart; on those held out it finds nothing."""
    x, y = gaussians(0.0, 200, 20)
    assert estimate_mutual_information(x, y, seed=0, steps=200) < 0.1


def test_it_follows_its_seed_and_leaves_the_random_state_alone() -> None:
    x, y = gaussians(0.5, 200, 3)
    before = torch.get_rng_state()
    first, again, other = (estimate_mutual_information(x, y, seed=seed, steps=5) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first == again != other


def test_units_and_constant_dimensions_do_not_matter() -> None:
    x, y = gaussians(0.5, 400, 3)
    first = estimate_mutual_information(x, y, seed=1, steps=20)
    assert estimate_mutual_information(8 * x - 3, y / 4, seed=1, steps=20) == pytest.approx(first, abs=1e-3)
    images = torch.cat([x, torch.full((400, 1), 7.0)], 1).view(400, 1, 2, 2)
    assert math.isfinite(estimate_mutual_information(images, y, seed=1, steps=5))


def test_what_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(ValueError, match="4 and 5"):
        estimate_mutual_information(torch.zeros(4, 1), torch.zeros(5, 1), seed=0)
    for held_out in (0.0, 1.0):
        with pytest.raises(ValueError, match="held_out"):
            estimate_mutual_information(torch.zeros(8, 1), torch.zeros(8, 1), seed=0, held_out=held_out)
