"""Differences over seeds are paired, and say nothing more than their number allows."""

import math

import pytest

from manyview.reproduce.verdict import (
    ABOVE,
    LEVEL,
    Comparison,
    Interval,
    compare,
    compared_table,
    count,
    over_seeds,
    spread,
)

BETTER = {0: 50.0, 1: 52.0, 2: 51.0}
WORSE = {0: 48.0, 1: 49.5, 2: 49.5, 7: 90.0}


def difference(first: dict[int, float], second: dict[int, float]) -> Interval | None:
    return Comparison("first", "second").found({"first": first, "second": second})


def test_the_interval_is_students_over_the_seeds_that_both_have() -> None:
    found = difference(BETTER, WORSE)
    assert found is not None
    differ = [2.0, 2.5, 1.5]
    half = 4.302652729911275 * 0.5 / math.sqrt(3)  # t(0.975, 2) from a table
    assert found.seeds == 3
    assert [found.mean, found.low, found.high] == pytest.approx([sum(differ) / 3, 2 - half, 2 + half])
    assert str(found) == "+2.0 [+0.8, +3.2]"


def test_two_seeds_give_no_interval_and_decide_nothing() -> None:
    found = difference({0: 1.0, 1: 1.0}, {0: 0.0, 1: 0.0})
    assert found is not None
    assert found.within(*ABOVE) is None
    assert "no interval" in str(found)
    assert difference({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("comparisons", "sentence"),
    [
        ([Comparison("b", "w")], "1 of 1 comparisons agrees with the paper."),
        ([Comparison("w", "b")], "0 of 1 comparisons agree with the paper, 1 contradicts it."),
        ([Comparison("b", "w"), Comparison("w", "b")], "1 of 2 comparisons agrees with the paper, 1 contradicts it."),
        (
            [Comparison("b", "w"), *[Comparison("w", "b")] * 4],
            "1 of 5 comparisons agrees with the paper, 4 contradict it.",
        ),
        (
            [Comparison("b", "w"), Comparison("b", "w", LEVEL)],
            "1 of 2 comparisons agrees with the paper, 1 is undecided.",
        ),
        (
            [Comparison("b", "w"), Comparison("b", "b", LEVEL), Comparison("near", "w")],
            "2 of 3 comparisons agree with the paper, 1 is undecided.",
        ),
        (
            [Comparison("near", "w"), Comparison("near", "b")],
            "0 of 2 comparisons agree with the paper, 2 are undecided.",
        ),
        ([Comparison("b", "gone")], "Not run."),
        ([Comparison("b", "w"), Comparison("b", "gone")], "1 of 2 comparisons agrees with the paper, 1 was not run."),
        (
            [Comparison("b", "w"), Comparison("b", "new"), Comparison("b", "gone")],
            "1 of 3 comparisons agrees with the paper, 1 is undecided, 1 was not run. Fewer than 3 seeds give no "
            "interval.",
        ),
    ],
)
def test_the_count_follows_the_intervals(comparisons: list[Comparison], sentence: str) -> None:
    values = {"b": BETTER, "w": WORSE, "near": {0: 49.0, 1: 49.0, 2: 51.0}, "new": {0: 49.0, 1: 50.0}}
    assert count(compare(comparisons, values)) == sentence


def test_few_seeds_are_said() -> None:
    sentence = count(compare([Comparison("b", "w")], {"b": {0: 2.0}, "w": {0: 1.0}}))
    assert sentence == ("0 of 1 comparisons agree with the paper, 1 is undecided. Fewer than 3 seeds give no interval.")


@pytest.mark.parametrize(("low", "high", "inside"), [(0.7, 3.3, True), (3.3, 4.0, False), (1.0, 4.0, None)])
def test_an_interval_lies_within_bounds_outside_or_across(low: float, high: float, inside: bool | None) -> None:
    assert over_seeds([2.0, 2.5, 1.5]).within(low, high) is inside


def test_what_was_not_run_has_no_row() -> None:
    both = [Comparison("b", "w"), Comparison("b", "gone")]
    table = compared_table("Differences", compare(both, {"b": BETTER, "w": WORSE}))
    assert [row[0] for row in table.rows] == ["b − w"]
    assert table.rows[0][-1] == "yes"


def test_spread_of_seeds() -> None:
    assert (spread([]), spread([47.2]), spread([1.0, 2.0, 3.0])) == ("not run", "47.2", "2.0 ± 1.0")
