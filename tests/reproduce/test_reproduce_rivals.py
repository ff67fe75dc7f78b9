"""Which runs are shown side by side."""

import pytest

from manyview.reproduce.job import Training
from manyview.reproduce.recipe import METHOD, of_one_seed, widest
from manyview.reproduce.verdict import Comparison


def job(method: str, seed: int, table: str = "") -> Training:
    words = (method, str(seed))
    return Training({"method": method, "seed": str(seed)}, table=table, words=words, looks=(), seconds=1.0)


def test_two_of_a_seed_that_both_have() -> None:
    first, second = job("a", 1), job("b", 1)
    assert of_one_seed([job("a", 0), second, first, job("b", 2)], ("a", "b")) == (first, second)
    assert of_one_seed([job("a", 0), job("b", 1)], ("a", "b")) is None
    assert of_one_seed([first, job("b", 1, table="trials")], ("a", "b")) is None


@pytest.mark.parametrize(("far", "expected"), [(60.0, "c"), (51.0, "b"), (40.0, "c")])
def test_those_that_differ_most(far: float, expected: str) -> None:
    jobs = [job(name, 0) for name in "abc"]
    values = {"a": {0: 50.0}, "b": {0: 55.0}, "c": {0: far}, "d": {0: 0.0}}
    asked = [Comparison("a", "b"), Comparison("a", "c"), Comparison("a", "d"), Comparison("e", "a")]
    found = widest(jobs, asked, values, METHOD)  # nobody ran "d" here, and "e" was not run at all
    assert found is not None
    assert [each.keys["method"] for each in found] == ["a", expected]


def test_nothing_that_was_run_leaves_nobody() -> None:
    assert widest([job("a", 0)], [Comparison("a", "b")], {"a": {0: 1.0}}, METHOD) is None
