"""Recipes that weigh steps: what their repetitions decide, and on which machine."""

from pathlib import Path

import pytest

from manyview.errors import UserError
from manyview.reproduce import RECIPES, Setting
from manyview.reproduce.job import Store
from manyview.reproduce.recipe import Found


def test_times_count_as_the_papers_where_their_ratios_are() -> None:
    recipe = RECIPES["cacr-table17"]
    paper = {
        ("CL", "1"): 0.837, ("AU-CL", "1"): 0.840, ("HN-CL", "1"): 0.889, ("CACR", "1"): 0.871,
        ("CL", "4"): 3.550, ("CACR", "2"): 0.996, ("CACR", "3"): 1.017, ("CACR", "4"): 1.342,
    }  # fmt: skip

    def found(other: dict[str, float]) -> Found:
        rows = [
            {
                "method": name,
                "positives": count,
                "batch": "1",
                "seed": str(seed),
                "milliseconds": str(100 * other.get(name + count, seconds) * (1 + noise * seed * (name == "CL"))),
            }
            for (name, count), seconds in paper.items()
            for seed in range(repetitions)
        ]
        return Found({"": rows}, Setting("laptop", "", tuple(range(repetitions))))

    def verdict(**other: float) -> str:
        return recipe.verdict(found(other))

    def rows(**other: float) -> tuple[tuple[str, ...], ...]:
        return recipe.shown(found(other))[-1].rows

    noise, repetitions = 0.0, 3
    assert verdict() == "5 of 5 comparisons agree with the paper."
    assert verdict(CL4=0.6) == "4 of 5 comparisons agree with the paper, 1 contradicts it."
    assert ("CL with four / CACR with four", "2.65 ± 25%", "0.45 [0.45, 0.45]", "3", "no") in rows(CL4=0.6)
    assert recipe.verdict(Found({"": []}, Setting("laptop", "", (0,)))) == "Not run."
    repetitions = 2
    assert verdict().startswith("0 of 5 comparisons agree with the paper, 5 are undecided.")
    noise, repetitions = 0.3, 3
    assert verdict() == "1 of 5 comparisons agrees with the paper, 4 are undecided."  # those to CL are too uncertain
    assert verdict(CACR4=0.3) == "0 of 5 comparisons agree with the paper, 2 contradict it, 3 are undecided."


def test_memory_is_judged_by_what_one_more_key_costs_in_each_repetition() -> None:
    recipe = RECIPES["jcl-memory"]

    def verdict(noise: float, seeds: int = 3, *, kinds: int = 3) -> str:
        slopes = {"JCL": 2.0, "vanilla, no gradient to keys": 3.0, "vanilla, all branches": 40.0}
        rows = [
            {
                "method": name, "positives": str(count), "seed": str(seed),
                "step_bytes": str(2**20 * (100 + count * (slope + noise * seed))),
            }
            for name, slope in list(slopes.items())[:kinds]
            for count in (1, 2, 4)
            for seed in range(seeds)
        ]  # fmt: skip
        return recipe.verdict(Found({"": rows}, Setting("laptop", "", tuple(range(seeds)))))

    assert verdict(0.1).startswith("1 of 1 comparisons agrees with the paper. One more key costs (fitted line): JCL")
    assert "JCL +2.1 [+1.9, +2.3] MiB" in verdict(0.1)
    assert verdict(0.1, 2).startswith("0 of 1 comparisons agree with the paper, 1 is undecided. Fewer than 3 seeds")
    assert verdict(20.0).startswith("0 of 1 comparisons agree with the paper, 1 is undecided.")
    assert verdict(0.1, kinds=2).startswith("Not run. One more key costs")


def test_more_positives_are_slow_or_not_by_the_interval_of_repetitions() -> None:
    recipe = RECIPES["cacr-table14"]

    def measured(*ratios: float) -> Found:
        rows = [
            {"method": "CACR", "positives": count, "seed": str(seed), "milliseconds": f"{milliseconds}"}
            for seed, ratio in enumerate(ratios)
            for count, milliseconds in (("1", 10.0), ("10", 10.0 * ratio))
        ]
        return Found({"": rows}, Setting("laptop", "", tuple(range(len(ratios)))))

    def shown(*ratios: float) -> tuple[str, ...]:
        return str(recipe.compared(measured(*ratios))[0].found), recipe.verdict(measured(*ratios)).partition(".")[0]

    agrees, undecided = (
        "1 of 1 comparisons agrees with the paper",
        "0 of 1 comparisons agree with the paper, 1 is undecided",
    )
    assert shown(3.0, 3.1, 3.2) == ("3.10 [2.85, 3.35]", agrees)
    assert shown(5.4, 5.5, 5.6)[1] == "0 of 1 comparisons agree with the paper, 1 contradicts it"
    assert shown(4.0, 5.0, 6.0) == ("5.00 [2.52, 7.48]", undecided)
    assert shown(3.0) == ("3.00", undecided)
    [compared] = recipe.compared(measured(3.0))
    assert (compared.what, compared.claimed) == ("time of K = 10 / time of K = 1", "below 4.95")
    assert recipe.verdict(measured(3.0)).endswith("Fitted line: 7.78 ms, and 2.22 ms more for each positive.")
    apart = [
        {"method": "CACR", "positives": count, "seed": seed, "milliseconds": "9"}
        for count, seed in (("1", "0"), ("10", "1"))
    ]
    assert recipe.verdict(Found({"": apart}, Setting("laptop", "", (0, 1)))).startswith("Not run.")


def test_steps_of_another_machine_are_not_added_to(tmp_path: Path) -> None:
    recipe, setting = RECIPES["cacr-table14"], Setting("laptop", "", (0,), device="cpu", threads=2)
    store = Store(tmp_path, recipe.name)
    job = recipe.jobs(setting, store)[0]
    row = {**dict.fromkeys(recipe.columns(), "1"), **job.keys, "device": "cpu", "threads": "2"}
    store.add(job, recipe.columns(), [row])
    recipe.check(setting, store)
    with pytest.raises(UserError, match="measured on cpu with 2 threads, and this would be cpu with 1: name another"):
        recipe.check(Setting("laptop", "", (0,), device="cpu", threads=1), store)
