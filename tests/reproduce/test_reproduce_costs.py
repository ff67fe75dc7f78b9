"""Recipes that weigh steps: what their repetitions decide, and on which machine."""

from pathlib import Path

import pytest

from manyview.errors import UserError
from manyview.reproduce import RECIPES, Setting
from manyview.reproduce.recipe import Found
from manyview.reproduce.store import Store


def test_times_count_as_the_papers_where_their_ratios_are() -> None:
    recipe = RECIPES["cacr-table17"]
    paper = {
        ("CL", "1"): 0.837, ("AU-CL", "1"): 0.840, ("HN-CL", "1"): 0.889, ("CACR", "1"): 0.871,
        ("CL", "4"): 3.550, ("CACR", "2"): 0.996, ("CACR", "3"): 1.017, ("CACR", "4"): 1.342,
    }  # fmt: skip

    def verdict(**other: float) -> str:
        rows = [
            {
                "method": name,
                "positives": count,
                "seed": str(seed),
                "milliseconds": str(100 * other.get(name + count, seconds) * (1 + noise * seed * (name == "CL"))),
            }
            for (name, count), seconds in paper.items()
            for seed in range(repetitions)
        ]
        return recipe.verdict(Found({"": rows}, Setting("laptop", "", tuple(range(repetitions)))))

    noise, repetitions = 0.0, 3
    assert verdict().startswith("The claim holds here: of 5 ratios 5 are the paper's")
    assert verdict(CL4=0.6).startswith("Mixed: of 5 ratios 4 are the paper's")
    assert ", 1 is clearly not. CACR with four" in verdict(CL4=0.6)
    assert "CL with four over CACR with four 0.45 [0.45, 0.45] (the paper: 2.65)" in verdict(CL4=0.6)
    assert recipe.verdict(Found({"": []}, Setting("laptop", "", (0,)))).startswith("Not decided")
    repetitions = 2
    assert verdict().startswith("Not decided here: of 5 ratios none is the paper's")
    noise, repetitions = 0.3, 3
    assert verdict().startswith("Partly: of 5 ratios 1 is")  # those to CL are too uncertain
    assert verdict(CACR4=0.3).startswith("Not borne out here: of 5 ratios none is the paper's")  # and 2 clearly not


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

    assert verdict(0.1).startswith("The claim holds here, but vanilla without a gradient to its keys is frugal too")
    assert "JCL +2.1 [+1.9, +2.3] MiB" in verdict(0.1)
    assert verdict(0.1, 2).startswith("Not decided here. One more key costs")
    assert verdict(20.0).startswith("Not decided here")
    assert verdict(0.1, kinds=2) == "Not decided here: not all of the three were measured."


def test_more_positives_are_slow_or_not_by_the_interval_of_repetitions() -> None:
    recipe = RECIPES["cacr-table14"]

    def verdict(*ratios: float) -> str:
        rows = [
            {"method": "CACR", "positives": count, "seed": str(seed), "milliseconds": f"{milliseconds}"}
            for seed, ratio in enumerate(ratios)
            for count, milliseconds in (("1", 10.0), ("10", 10.0 * ratio))
        ]
        return recipe.verdict(Found({"": rows}, Setting("laptop", "", tuple(range(len(ratios))))))

    assert verdict(3.0, 3.1, 3.2).startswith("The claim holds here: K = 10 takes 3.10 [2.85, 3.35] times as long as K")
    assert verdict(5.4, 5.5, 5.6).startswith("The claim does not hold here: K = 10 takes 5.50")
    assert verdict(4.0, 5.0, 6.0).startswith("Not decided here: K = 10 takes 5.00 [2.52, 7.48] times")
    assert verdict(3.0).startswith("Not decided here: K = 10 takes 3.00 times as long as K = 1 for 5.5 times its views")
    apart = [
        {"method": "CACR", "positives": count, "seed": seed, "milliseconds": "9"}
        for count, seed in (("1", "0"), ("10", "1"))
    ]
    assert recipe.verdict(Found({"": apart}, Setting("laptop", "", (0, 1)))).endswith("has both K = 1 and K = 10.")


def test_steps_of_another_machine_are_not_added_to(tmp_path: Path) -> None:
    recipe, setting = RECIPES["cacr-table14"], Setting("laptop", "", (0,), device="cpu", threads=2)
    store = Store(tmp_path, recipe.name)
    job = recipe.jobs(setting, store)[0]
    row = {**dict.fromkeys(recipe.columns(), "1"), **job.keys, "device": "cpu", "threads": "2"}
    store.add(job, recipe.columns(), [row])
    recipe.check(setting, store)
    with pytest.raises(UserError, match="measured on cpu with 2 threads, and this would be cpu with 1: name another"):
        recipe.check(Setting("laptop", "", (0,), device="cpu", threads=1), store)
