"""Steps that are measured: which ones, and with which settings."""

import pytest

from manyview.cost.point import ALL_BRANCHES, FORWARD, config_of, measured


def test_the_number_of_positives_is_set_in_the_words_of_the_method() -> None:
    assert config_of("jcl", keys=3).keys == 3
    assert config_of("cacr", keys=3).views == 4
    assert config_of(ALL_BRANCHES, keys=2).all_branches
    assert config_of("moco-v2", keys=3, queue=64).queue_size == 64


@pytest.mark.parametrize("kind", ["jcl", FORWARD])
def test_a_step_is_measured_in_a_process_of_its_own(kind: str) -> None:
    found = measured(kind, {"batch": 4, "size": 16, "queue": 16, "keys": 2}, threads=1, repeats=2)
    assert 0 < found["least"] <= found["seconds"] <= found["most"]
    assert 0 <= found["step_bytes"] <= found["peak_bytes"]
