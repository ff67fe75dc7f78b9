import pytest
import torch

from manyview import counter


def test_a_draw_depends_on_its_words_alone_and_not_on_the_batch() -> None:
    index = torch.arange(100)
    whole = counter.uniform(1, 2, index[:, None], torch.arange(6))
    shuffled = index[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    assert torch.equal(counter.uniform(1, 2, shuffled[:, None], torch.arange(6)), whole[shuffled])
    assert counter.uniform(1, 2, 17, 3) == whole[17, 3]


def test_every_word_and_its_place_change_the_draw() -> None:
    draws = {
        float(counter.uniform(*words)) for words in [(1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (1, 3), (-1, 2), (2**62, 2)]
    }
    assert len(draws) == 7


def test_the_hash_never_changes_between_versions() -> None:
    """Runs are reproducible only as long as these numbers stay; they are those of splitmix64 over the words."""
    mask = 2**64 - 1

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    for words in [(0,), (1, 2, 3), (12345678901234567, -5)]:
        state = 0
        for word in words:
            state = mix((state + word + 0x9E3779B97F4A7C15) & mask)
        assert int(counter.bits(*words)) % 2**64 == state
        assert int(counter.bits(*(torch.tensor(word) for word in words))) % 2**64 == state


def test_uniform_and_normal_numbers_have_their_moments() -> None:
    index = torch.arange(400_000)
    u, z = counter.uniform(3, index).double(), counter.normal(4, index).double()
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    assert float(u.mean()) == pytest.approx(0.5, abs=3e-3)
    assert float(u.var()) == pytest.approx(1 / 12, abs=1e-3)
    assert float(z.mean()) == pytest.approx(0, abs=7e-3)
    assert float(z.var()) == pytest.approx(1, abs=1e-2)
    assert float((z**4).mean()) == pytest.approx(3, abs=0.1)
    assert z.isfinite().all()


def test_neighbouring_counters_are_uncorrelated() -> None:
    u = counter.uniform(0, torch.arange(100_000)).double() - 0.5
    for lag in (1, 2, 64):
        assert abs(float((u[lag:] * u[:-lag]).mean()) * 12) < 0.02


def test_a_permutation_holds_each_number_once_and_follows_its_words() -> None:
    a, b = counter.permutation(1000, 0, 1), counter.permutation(1000, 0, 2)
    assert torch.equal(a.sort().values, torch.arange(1000))
    assert torch.equal(a, counter.permutation(1000, 0, 1))
    assert not torch.equal(a, b)
    firsts = torch.tensor([int(counter.permutation(4, seed)[0]) for seed in range(2000)]).bincount(minlength=4)
    assert (firsts - 500).abs().max() < 100
