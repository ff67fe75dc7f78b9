"""Differences over seeds are paired, and say nothing more than their number allows."""

import math

import pytest

from manyview.reproduce.verdict import Comparison, differences, judge, paired, spread

BETTER = {0: 50.0, 1: 52.0, 2: 51.0}
WORSE = {0: 48.0, 1: 49.5, 2: 49.5, 7: 90.0}


def test_the_interval_is_students_over_the_seeds_that_both_have() -> None:
    found = paired(BETTER, WORSE)
    assert found is not None
    differ = [2.0, 2.5, 1.5]
    half = 4.302652729911275 * 0.5 / math.sqrt(3)  # t(0.975, 2) from a table
    assert found.seeds == 3
    assert [found.mean, found.low, found.high] == pytest.approx([sum(differ) / 3, 2 - half, 2 + half])
    assert str(found) == "+2.0 [+0.8, +3.2]"


def test_two_seeds_give_no_interval_and_decide_nothing() -> None:
    found = paired({0: 1.0, 1: 1.0}, {0: 0.0, 1: 0.0})
    assert found is not None
    assert found.supports("above") is None
    assert "no interval" in str(found)
    assert paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("comparisons", "start"),
    [
        ([Comparison("b", "w")], "The claim holds here"),
        ([Comparison("w", "b")], "The claim does not hold here"),
        (
            [Comparison("b", "w"), Comparison("w", "b")],
            "Mixed: of 2 differences 1 is clearly as the paper has them (b above w), 1 is clearly otherwise (b above "
            "w).",
        ),
        ([Comparison("b", "w"), *[Comparison("w", "b")] * 4], "Mixed: of 5 differences 1 is clearly"),
        ([Comparison("b", "w"), *[Comparison("w", "b")] * 5], "Mostly not borne out here: of 6 differences 1 is clear"),
        ([Comparison("w", "b"), *[Comparison("b", "w")] * 5], "Mostly borne out here: of 6 differences 5 are clearly"),
        ([Comparison("b", "w"), Comparison("b", "w", "level")], "Partly: of 2 differences 1 is clearly as the paper"),
        (
            [Comparison("w", "b"), Comparison("b", "w", "level")],
            "Not borne out here: of 2 differences none is clearly as the paper has them, 1 is clearly otherwise "
            "(b above w); 1 is not clear of chance, and does not point the paper's way",
        ),
        (
            [Comparison("b", "w"), Comparison("near", "w")],
            "Partly: of 2 differences 1 is clearly as the paper has them (b above w), none is clearly otherwise; 1 is "
            "not clear of chance, and points the paper's way.",
        ),
        (
            [Comparison("near", "w")],
            "Not decided here: the difference is not clear of chance, and points the paper's",
        ),
        (
            [Comparison("near", "w"), Comparison("near", "b")],
            "Not decided here: none of 2 differences is clear of chance, and 1 of these points the paper's way.",
        ),
        (
            [Comparison("near", "w"), Comparison("near", "w")],
            "Not decided here: none of 2 differences is clear of chance, and all of these point the paper's way.",
        ),
        ([Comparison("b", "b", "level")], "The claim holds here"),
        ([Comparison("b", "gone")], "Not run"),
    ],
)
def test_the_verdict_follows_the_intervals(comparisons: list[Comparison], start: str) -> None:
    assert judge(comparisons, {"b": BETTER, "w": WORSE, "near": {0: 49.0, 1: 49.0, 2: 51.0}}).startswith(start)


def test_few_seeds_are_said() -> None:
    sentence = judge([Comparison("b", "w")], {"b": {0: 2.0}, "w": {0: 1.0}})
    assert sentence == "Not decided here: 1 seed gives no interval. 1 of 1 differences are as the paper has them."


def test_a_comparison_of_few_seeds_does_not_undo_the_others() -> None:
    values = {"b": BETTER, "w": WORSE, "new": {0: 49.0, 1: 50.0}}
    sentence = judge([Comparison("b", "w"), Comparison("b", "new"), Comparison("b", "gone")], values)
    assert sentence == (
        "As far as it was run, the claim holds here: the difference is as in the paper, clear of chance (1 of 3 "
        "comparisons were not run). 1 more has too few seeds for an interval."
    )


def test_several_comparisons_are_said_to_be_several() -> None:
    both = [Comparison("b", "w"), Comparison("b", "w")]
    assert judge(both, {"b": BETTER, "w": WORSE}).endswith("Each of the 2 is judged at 95 % by itself.")


def test_what_was_not_run_has_no_row() -> None:
    table = differences([Comparison("b", "w"), Comparison("b", "gone")], {"b": BETTER, "w": WORSE})
    assert [row[0] for row in table.rows] == ["b − w"]
    assert table.rows[0][-1] == "yes"


def test_spread_of_seeds() -> None:
    assert (spread([]), spread([47.2]), spread([1.0, 2.0, 3.0])) == ("not run", "47.2", "2.0 ± 1.0")
