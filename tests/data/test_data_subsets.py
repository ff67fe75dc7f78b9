"""What is left of each class, which samples, and that a part of a source is as good as a source."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from manyview.counter import bits
from manyview.data import Folder, Loader, Packed, Source, fewer, imbalanced, open_source, pack
from manyview.data.source import Arrays
from manyview.data.subsets import FEWER_TAG, IMBALANCE_TAG, Rule, counts_in_words, kept_share
from manyview.errors import UserError

RULES = pytest.mark.parametrize("rule", ["linear", "exponential"])


class Classes(Arrays):
    """Samples of classes 0, 1, … in turn, as long as they last; image i is filled with i modulo 251."""

    def __init__(self, *counts: int, labelled: bool = True) -> None:
        self.name, self.fingerprint, self.size = "classes", "classes", (2, 2)
        labels = [label for turn in range(max(counts)) for label, count in enumerate(counts) if turn < count]
        if labelled:
            self.labels, self.classes = torch.tensor(labels), tuple(f"class {number}" for number in range(len(counts)))
        content = (torch.arange(len(labels)) % 251).byte()
        self.images = content[:, None, None, None].expand(-1, 3, 2, 2).contiguous()
        self.arrays = {"image": self.images}


def counts(source: Source, rule: Rule, ratio: float = 100.0) -> list[int]:
    return imbalanced(source, rule, ratio=ratio, seed=0).class_counts


def test_linear_keeps_l_of_c_parts() -> None:
    assert counts(Classes(*[100] * 10), "linear") == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert counts(Classes(40, 10, 7, 8), "linear") == [10, 5, 5, 8]  # 40/4, 10·2/4, 7·3/4 = 5.25, 8


def test_exponential_falls_by_the_same_factor_from_class_to_class() -> None:
    assert counts(Classes(1000, 1000, 1000), "exponential") == [10, 100, 1000]
    assert counts(Classes(*[64] * 7), "exponential", ratio=64) == [1, 2, 4, 8, 16, 32, 64]
    # 5000 · 100^(-k/9) for k = 9 … 0, the long-tailed CIFAR-10
    assert counts(Classes(*[5000] * 10), "exponential") == [50, 83, 139, 232, 387, 646, 1077, 1797, 2997, 5000]
    assert counts(Classes(30, 30), "exponential", ratio=1) == [30, 30]


def test_shares_follow_the_formulas() -> None:
    for classes in (2, 10, 100):
        for place in range(1, classes + 1):
            assert kept_share("linear", place, classes, 100) == place / classes
            expected = 100 ** (-(classes - place) / (classes - 1))
            assert kept_share("exponential", place, classes, 100) == pytest.approx(expected, rel=1e-12)


def test_a_class_with_samples_keeps_one_and_an_empty_one_none() -> None:
    assert counts(Classes(3, 0, 2, 50), "exponential") == [1, 0, 1, 50]
    assert counts(Classes(2, 0, 1), "linear") == [1, 0, 1]


@RULES
def test_a_single_class_keeps_all(rule: Rule) -> None:
    assert counts(Classes(9), rule) == [9]


def kept(source: Source, rule: Rule, seed: int = 0, ratio: float = 100.0) -> list[int]:
    indices: list[int] = imbalanced(source, rule, ratio=ratio, seed=seed).indices.tolist()
    return indices


@RULES
def test_those_with_the_smallest_hash_are_kept_in_their_order(rule: Rule) -> None:
    source = Classes(60, 20, 40)
    assert source.labels is not None
    hashes = bits(5, IMBALANCE_TAG, torch.arange(len(source))).tolist()
    expected = []
    for label, count in enumerate(counts(source, rule)):
        own = [i for i, each in enumerate(source.labels.tolist()) if each == label]
        expected += sorted(own, key=lambda i: hashes[i])[:count]
    assert kept(source, rule, seed=5) == sorted(expected)


@RULES
def test_the_seed_decides_which_samples_and_not_how_many(rule: Rule) -> None:
    source = Classes(50, 50, 50)
    one, again, other = (imbalanced(source, rule, ratio=10, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.indices, again.indices)
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert not torch.equal(one.indices, other.indices)
    assert one.class_counts == other.class_counts


def test_a_stricter_ratio_keeps_some_of_the_same_samples() -> None:
    source = Classes(200, 200, 200)
    assert set(kept(source, "exponential", ratio=50)) < set(kept(source, "exponential", ratio=5))


def test_every_sample_of_a_class_is_kept_as_often_as_any_other() -> None:
    source = Classes(20, 20)
    often = torch.stack([torch.bincount(torch.tensor(kept(source, "linear", s)), minlength=40) for s in range(2000)])
    first = often.sum(0)[::2].double()  # of class 0, which keeps a half
    assert (first - 1000).abs().max() < 5 * 500**0.5  # five standard deviations of 2000 tosses


def test_without_labels_there_is_nothing_to_balance() -> None:
    message = r"^--imbalance linear needs labels, which 'classes' has not: use --imbalance none, or images in one dir"
    with pytest.raises(UserError, match=message):
        imbalanced(Classes(5, 5, labelled=False), "linear", ratio=100, seed=0)


@pytest.mark.parametrize("count", [1, 7, 30])
@pytest.mark.parametrize("seed", [0, 5])
def test_fewer_samples_are_the_first_by_hash_in_their_order(count: int, seed: int) -> None:
    source = Classes(10, 10, 10)
    order = sorted(range(30), key=lambda i: int(bits(seed, FEWER_TAG, torch.tensor(i))))
    part = fewer(source, count, seed=seed)
    assert part.indices.tolist() == sorted(order[:count])
    assert part.batch(torch.arange(count))["image"].equal(source.images[part.indices])


def test_no_fewer_than_there_are() -> None:
    assert len(fewer(Classes(3, 4), 100, seed=0)) == 7


@pytest.mark.parametrize("ratio", [0.5, 0.0, -1.0, float("nan")])
def test_a_ratio_below_one_is_refused(ratio: float) -> None:
    with pytest.raises(UserError, match=r"--imbalance-ratio \S+ must be at least 1: "):
        imbalanced(Classes(5, 5), "exponential", ratio=ratio, seed=0)


def test_counts_are_told_in_a_few_words() -> None:
    assert counts_in_words([10, 100, 1000]) == "10, 100, 1,000"
    assert counts_in_words(range(5, 1005)) == "5 to 1,004 in 1,000 classes"
    assert counts_in_words([]) == ""


def test_batches_hold_the_images_of_the_kept_samples() -> None:
    source = Classes(60, 60)
    part = imbalanced(source, "linear", ratio=100, seed=3)
    seen: list[int] = []
    for batch in Loader(part, batch_size=9, seed=0, stop=10):
        assert torch.equal(batch.fields["image"], source.images[part.indices[batch.index]])
        seen += part.indices[batch.index].tolist()
    assert sorted(seen) == part.indices.tolist()


def tree(root: Path, per_class: int, broken: int = 0, size: int | None = None) -> Path:
    """Two directories of images; the first `broken` of each are cut off behind the header."""
    draw = random.Random(0)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            shape = (size, size) if size else (draw.randint(100, 140), draw.randint(100, 140))
            file = root / name / f"{i:03d}.png"
            Image.frombytes("RGB", shape, draw.randbytes(3 * shape[0] * shape[1])).save(file)
            if i < broken:
                file.write_bytes(file.read_bytes()[:10])
    return root


def first_pixels(sample: Mapping[str, Tensor], _index: int, _epoch: int) -> dict[str, Tensor]:
    return {"image": sample["image"][None, :, :8, :8].contiguous()}


@pytest.mark.parametrize("workers", [0, 2])
def test_large_images_are_read_one_by_one_and_broken_ones_replaced_from_the_kept(tmp_path: Path, workers: int) -> None:
    source = Folder(tree(tmp_path / "photos", 40, broken=2))
    part = imbalanced(source, "exponential", ratio=4, seed=0)
    assert part.size is None
    assert part.median_side == source.median_side
    assert part.class_counts == [10, 40]
    seen: set[str] = set()
    for batch in Loader(part, batch_size=10, seed=0, stop=5, crop=first_pixels, workers=workers):
        for place, index in enumerate(batch.index.tolist()):
            assert torch.equal(batch.fields["image"][place], first_pixels(part.read(index), 0, 0)["image"])
        seen |= {part.id(index) for index in batch.unreadable}
    assert sorted(seen) == [name for name, _ in part.unreadable]
    assert {"b/000.png", "b/001.png"} <= seen


def test_only_kept_images_count_as_unreadable(tmp_path: Path) -> None:
    """4 % of the whole are allowed; the same images would be 10 % of the part."""
    source = Folder(tree(tmp_path / "photos", 50, broken=2))
    broken = [name for name, _ in source.unreadable]
    assert len(broken) == 4
    part = imbalanced(source, "exponential", ratio=50, seed=0)
    ids = {part.id(i) for i in range(len(part))}
    assert [name for name, _ in part.unreadable] == [name for name in broken if name in ids]
    assert "a/000.png" not in ids  # otherwise this test could not fail


def test_a_packed_copy_left_broken_images_out_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    source = open_source(str(tree(tmp_path / "photos", 50, broken=2, size=16)))
    assert isinstance(source, Packed)
    assert len(source.unreadable) == 4
    assert imbalanced(source, "linear", ratio=100, seed=0).unreadable == ()


def test_a_part_can_be_packed(tmp_path: Path) -> None:
    part = imbalanced(Classes(8, 8), "linear", ratio=100, seed=0)
    packed = pack(part, tmp_path / "part.safetensors", progress=False)
    assert packed.class_counts == [4, 8]
    assert torch.equal(packed.arrays["image"], part.batch(torch.arange(len(part)))["image"])
