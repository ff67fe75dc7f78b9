"""The diagnoses of several runs as one."""

from pathlib import Path

import pytest

from manyview.diagnose.finding import Finding
from manyview.reproduce.page import over_runs

WELL = Finding("good", "Embeddings", "Not collapsed.")
COLLAPSED = Finding("problem", "Embeddings", "Collapsed.", "Try a lower --lr.")
HIGH = Finding("warning", "Loss", "Near chance.", "More --epochs.")


@pytest.fixture
def diagnosed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Finding]]:
    """What is found, by the name of the run's directory."""
    found: dict[str, list[Finding]] = {}
    monkeypatch.setattr("manyview.reproduce.page.findings", lambda run: found[run.name])
    return found


def runs(names: str) -> dict[str, Path]:
    return {f"seed {name}": Path(name) for name in names}


def test_what_all_say_is_said_once(diagnosed: dict[str, list[Finding]]) -> None:
    diagnosed |= {name: [WELL] for name in "abc"}
    [one] = over_runs(runs("abc"))
    assert (one.level, one.about, one.text) == ("good", "Embeddings", "All 3 runs, for example seed a: Not collapsed.")


def test_the_worst_comes_first_with_the_runs_that_have_it(diagnosed: dict[str, list[Finding]]) -> None:
    diagnosed |= {"a": [WELL], "b": [COLLAPSED, HIGH], "c": [WELL], "d": [WELL], "e": [WELL, HIGH]}
    assert [(each.level, each.text, each.advice) for each in over_runs(runs("abcde"))] == [
        ("problem", "seed b: Collapsed.", "Try a lower --lr."),
        ("warning", "seed b; seed e: Near chance.", "More --epochs."),
        ("good", "4 of 5 runs, for example seed a: Not collapsed.", ""),
    ]


def test_no_runs_no_findings(diagnosed: dict[str, list[Finding]]) -> None:
    assert over_runs({}) == []
