"""What every source shares: parts of it, a part held out, the limit on broken images."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from manyview.data import Source, Subset, check_unreadable, holdout
from manyview.data.missing import Incomplete
from manyview.data.source import Arrays, Names, track
from manyview.errors import UserError


class Named(Arrays):
    """Images filled with the first letter's number, named as told."""

    def __init__(self, *names: str) -> None:
        self.name, self.fingerprint, self.size = "named", "-".join(names), (2, 2)
        self.names = names
        self.labels, self.classes = torch.tensor([len(name) for name in names]), ("", "a", "b", "c")
        self.images = torch.tensor([ord(name[0]) for name in names]).byte()[:, None, None, None].expand(-1, 3, 2, 2)
        self.arrays = {"image": self.images}

    def id(self, index: int) -> str:
        return self.names[index]


def ids(source: Source) -> list[str]:
    return [source.id(i) for i in range(len(source))]


def test_a_subset_is_the_source_seen_through_indices() -> None:
    source = Named("a", "bb", "ccc")
    subset = Subset(source, torch.tensor([2, 0]))
    assert ids(subset) == ["ccc", "a"]
    assert subset.labels is not None
    assert subset.labels.tolist() == [3, 1]
    assert torch.equal(subset.read(0)["image"], source.read(2)["image"])
    assert torch.equal(subset.batch(torch.tensor([1, 0, 0]))["image"], source.batch(torch.tensor([0, 2, 2]))["image"])
    assert (subset.size, subset.classes, subset.name) == (source.size, source.classes, source.name)
    assert subset.fingerprint != Subset(source, torch.tensor([0, 2])).fingerprint


def test_the_hold_out_takes_about_its_share_and_leaves_the_rest() -> None:
    source = Named(*(f"x{i}" for i in range(2000)))
    rest, held_out = holdout(source)
    assert sorted(ids(rest) + ids(held_out)) == sorted(ids(source))
    assert 0.17 < len(held_out) / 2000 < 0.23
    assert len(holdout(source, 0.5)[1]) > len(held_out)


def test_the_hold_out_of_a_sample_depends_on_its_id_alone() -> None:
    names = [f"x{i}" for i in range(100)]
    held_out = set(ids(holdout(Named(*names))[1]))
    assert set(ids(holdout(Named(*reversed(names)))[1])) == held_out
    more = set(ids(holdout(Named("new", *names, "newer"))[1]))
    assert more & set(names) == held_out
    assert ["x11" in held_out, "x0" in held_out] == [True, False]  # as in every version so far


def test_a_set_too_small_to_hold_a_part_out_is_an_error() -> None:
    with pytest.raises(UserError, match=r"'named' has too few samples or groups to hold 20% out: use --test-data"):
        holdout(Named("a"))


def test_the_description_is_plain_data() -> None:
    description = Named("a", "bb").describe()
    assert json.loads(json.dumps(description)) == description
    assert description == {
        "name": "named",
        "samples": 2,
        "size": [2, 2],
        "fingerprint": "a-bb",
        "fields": ["image"],
        "missing": {},
        "classes": ["", "a", "b", "c"],
        "class_counts": [0, 1, 1, 0],
        "order": "",
    }


def test_more_than_five_percent_unreadable_is_an_error(tmp_path: Path) -> None:
    check_unreadable(5, 100, tmp_path / "unreadable.txt")
    message = r"^6 of 100 images cannot be read, more than 5%: repair or remove them \(see .*unreadable.txt\)$"
    with pytest.raises(UserError, match=message):
        check_unreadable(6, 100, tmp_path / "unreadable.txt")


def test_names_are_kept_in_order_and_within_bounds() -> None:
    names = Names.of([b"a", b"", b"caf\xc3\xa9", b"\xff"])
    assert [names[i] for i in range(len(names))] == ["a", "", "café", "\\xff"]
    assert names.raw(3) == b"\xff"
    with pytest.raises(IndexError):
        names[4]


def test_a_group_is_never_on_both_sides_of_a_split() -> None:
    source = Named(*map(str, range(400)))
    source.groups, source.group_names = torch.arange(400) % 40, [f"video {number}" for number in range(40)]
    rest, held_out = holdout(source, 0.25)
    assert rest.groups is not None
    assert held_out.groups is not None
    assert len(rest) + len(held_out) == 400
    assert set(rest.groups.tolist()).isdisjoint(held_out.groups.tolist())
    assert 4 <= len(set(held_out.groups.tolist())) <= 18
    # Decided by the group's name: other numbers, and other groups beside it, change nothing.
    fewer = Named(*map(str, range(20)))
    fewer.groups, fewer.group_names = torch.arange(20), [f"video {19 - number}" for number in range(20)]
    names = {fewer.group_names[number] for number in holdout(fewer, 0.25)[1].groups.tolist()}  # type: ignore[union-attr]
    assert names == {source.group_names[number] for number in held_out.groups.tolist() if number < 20}


class Sharded(Arrays):
    """Shards of so many samples, not all of which can be at hand."""

    def __init__(self, counts: list[int], window: int) -> None:
        self.name, self.fingerprint, self.size, self.window = "sharded", "", (1, 1), window
        self.shards = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        self.arrays = {
            "image": torch.zeros(sum(counts), 3, 1, 1, dtype=torch.uint8),
            "depth": torch.ones(sum(counts), 1, 1, 1, dtype=torch.uint16),
        }
        self.fields = self.selected = ("image", "depth")
        self.expected: list[int] = []

    def expect(self, numbers: Sequence[int]) -> None:
        self.expected += numbers


def test_far_shards_are_shuffled_in_windows() -> None:
    source = Sharded([7] * 10, window=3)
    order = source.order(5, 1)
    assert torch.equal(order, source.order(5, 1))
    assert not torch.equal(order, source.order(5, 2))
    assert order.sort().values.tolist() == list(range(70))
    shards = order // 7
    starts = [0]
    for size in (3, 2, 3, 2):  # 10 shards in 4 windows
        some = shards[starts[-1] : starts[-1] + 7 * size]
        assert len(some.unique()) == size
        assert len(some[: 7 * size // 2].unique()) > 1, "they are mixed"
        starts.append(starts[-1] + 7 * size)
    assert len({tuple(source.order(5, epoch)[:21].div(7, rounding_mode="floor").unique()) for epoch in range(5)}) > 1


def test_parts_of_far_shards_keep_the_windows() -> None:
    source = Sharded([40] * 6, window=2)
    part = Incomplete(Subset(source, torch.arange(0, 240, 3)).select(("image", "depth")), 0.5, seed=0)
    numbers = (3 * part.order(1)) // 40
    windows = [source.order(1)[start : start + 80].div(40, rounding_mode="floor").unique() for start in (0, 80, 160)]
    lengths = [int(torch.isin(numbers, window).sum()) for window in windows]
    for window, some in zip(windows, numbers.split(lengths), strict=True):
        assert set(some.tolist()) == set(window.tolist())
    part.expect([0, 5])
    assert source.expected == [0, 15]


def test_looks_at_far_shards_share_a_few_of_them() -> None:
    source = Sharded([1000] * 10, window=4)
    looks = [source.some(word) for word in range(3)]
    assert len(torch.cat(looks).div(1000, rounding_mode="floor").unique()) == 3
    assert looks[0].tolist() != looks[1].tolist()
    assert len(Sharded([1000] * 10, window=2).near) == 2000, "no more than are at hand at once"
    few = Subset(Sharded([1000] * 100, window=2), torch.arange(3) * 40_000 + 7)
    assert len(few.some(0)) == 2, "of shards that have samples"
    assert (source.order_in_words, Named("a").order_in_words) == ("shuffled within 4 of 10 shards at a time", "")


def test_what_takes_long_has_lines_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 7))  # seconds
    monkeypatch.setattr("manyview.data.source.time.monotonic", lambda: next(clock))
    assert list(track("abcdefghij", "reading")) == list("abcdefghij")
    assert list(track(iter("abcdef"), "more")) == list("abcdef")
    assert list(track("abcdefghij", "hidden", show=False)) == list("abcdefghij")
    assert capsys.readouterr().err.splitlines() == ["reading: 4 of 10", "reading: 9 of 10", "more: 4"]
