"""Every recipe names runs that can be started, shares those that others need, and has carried its results over."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invented import made_up

from manyview.arguments import NEEDED, read
from manyview.config import Config, DataConfig, RunConfig
from manyview.errors import UserError
from manyview.methods import find as find_method
from manyview.reproduce import RECIPES, Scale, Setting, find
from manyview.reproduce.job import IMAGES, RUN, Store, Training
from manyview.reproduce.looks import TILES
from manyview.reproduce.page import png, titled
from manyview.reproduce.recipe import Found, Recipe
from manyview.run import presets

EXPECTED = {
    *("jcl-fig2a", "jcl-fig2b", "jcl-fig2c", "jcl-fig3", "jcl-memory", "jcl-epochs", "jcl-search", "jcl-enqueue"),
    *(f"cmc-{name}" for name in ("fig4", "fig5", "fig6", "table1", "table4", "table5")),
    *(f"cacr-fig{number}" for number in (3, 4, 5, "5-cifar100", 6, 7, 8, 9, 10)),
    "cacr-entropy",
    *(f"cacr-table{number}" for number in (2, 10, 11, 12, 13, 14, 17, 20)),
}


def trainings(recipe: Recipe, scale: Scale, seed: int = 0) -> list[Training]:
    jobs = recipe.jobs(Setting(scale, "CIFAR", (seed,)), Store(Path("nowhere"), recipe.name))
    return [job for job in jobs if isinstance(job, Training)]


def test_all_of_the_tables_and_figures_are_there() -> None:
    assert set(RECIPES) == EXPECTED
    names = list(RECIPES)
    assert names.index("cacr-fig9") < names.index("cacr-fig10")
    with pytest.raises(UserError, match=r"no recipe 'jcl-fig9': choose one of .*jcl-fig2a"):
        find("jcl-fig9")


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_the_flags_of_all_runs_are_those_of_pretrain(scale: Scale) -> None:
    kinds: dict[tuple[str, ...], tuple[str, ...]] = {}
    for recipe in RECIPES.values():
        for job in trainings(recipe, scale):
            names = tuple(word for word in job.words if word.startswith("--"))
            kinds[job.words[0], *names] = tuple(word if word != "None" else "1" for word in job.words)
    assert len(kinds) > 10
    for words in kinds.values():
        method = find_method(words[0])
        blank = presets.paper(method, RunConfig(out=NEEDED), DataConfig(data=NEEDED))
        kind = Config[method.Config]  # type: ignore[name-defined]
        found = read(kind, [*words[1:], "--data", "scenes", "--out", "x"], blank, prog="pretrain")
        assert (found.problems, found.missing) == ((), ())
        assert str(found.value.run.seed) == words[words.index("--seed") + 1]


def test_the_papers_set_ups() -> None:
    jcl = " ".join(trainings(RECIPES["jcl-fig2b"], "paper")[5].words)
    for words in (
        "--backbone resnet18",
        "--batch-size 128",
        "--lr 0.1",
        "--epochs 100",
        "--temperature 0.2",
        "--lam 4",
        "--bn-splits 8",
    ):
        assert words in jcl
    cacr = " ".join(trainings(RECIPES["cacr-table2"], "paper")[0].words)
    assert "--preset paper-cifar" in cacr
    assert "--epochs 200" in cacr
    curves = {job.identity for job in trainings(RECIPES["cacr-fig3"], "paper")}
    assert curves <= {job.identity for job in trainings(RECIPES["cacr-table2"], "paper")}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_results_hold_every_key(name: str) -> None:
    recipe = RECIPES[name]
    for job in recipe.jobs(Setting("laptop", "CIFAR", (0, 1)), Store(Path("nowhere"), name)):
        assert {*job.keys, "seconds"} <= set(recipe.columns(job.table))
        assert not {IMAGES, RUN} & set(recipe.columns(job.table))  # the store's own
        assert job.seconds > 0


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_figures_tables_and_verdict_come_from_rows_alone(name: str, tmp_path: Path) -> None:
    recipe, setting = RECIPES[name], Setting("laptop", "CIFAR", (0, 1, 2))
    store = Store(tmp_path, name, "", "50000/10/32" if recipe.takes_images else None)
    for _ in range(2):  # a second time for runs that wait for others
        for number, job in enumerate(recipe.jobs(setting, store)):
            if not job.waits_for:
                store.add(job, recipe.columns(job.table), made_up(recipe, job, number))
    found = recipe.found(recipe.jobs(setting, store), store, setting)
    assert sum(map(len, found.rows.values())) >= len(recipe.jobs(setting, store))
    figure = titled(recipe, found)
    assert png(figure).startswith(b"\x89PNG")
    title = figure.get_suptitle()
    assert ("minimum to maximum" in title.replace("\n", " ")) == (name not in {"cacr-fig6", "cacr-fig7", "jcl-fig3"})
    assert max(map(len, title.splitlines())) < 16 * figure.get_figwidth()
    tables = recipe.tables(found)
    assert all(len(row) == len(table.header) for table in tables for row in table.rows)
    assert any(table.rows for table in tables)
    assert recipe.verdict(found)
    done = recipe.jobs(setting, store)
    assert not any(job.waits_for for job in done)
    rivals = recipe.rivals(found, done)
    assert (rivals is None) == (name in {"cacr-fig6", "cacr-table14", "cacr-table17", "cmc-table4", "jcl-memory"})
    if rivals is not None:
        assert rivals[0].keys["seed"] == rivals[1].keys["seed"]
        assert rivals[0].identity != rivals[1].identity
        assert {job.table for job in rivals} == {""}


def test_a_figure_says_when_some_set_ups_have_fewer_seeds_than_others() -> None:
    recipe, setting = RECIPES["jcl-fig2b"], Setting("laptop", "CIFAR", (0, 1, 2))
    rows = [
        {"lam": lam, "seed": str(seed), "linear": "50"} for lam, seeds in (("0", 1), ("4", 3)) for seed in range(seeds)
    ]
    assert recipe.shown_seeds(Found({"": rows}, setting)) == "1 to 3 seeds, minimum to maximum"
    assert recipe.shown_seeds(Found({"": rows[1:]}, setting)) == "3 seeds, minimum to maximum"
    assert (
        recipe.shown_seeds(Found({"": rows[:2]}, setting)) == "1 seed, minimum to maximum"
    )  # of the three none but this
    assert recipe.shown_seeds(Found({"": rows[:1]}, replace(setting, seeds=(0,)))) == "seed 0"
    curves = [
        {"method": method, "imbalance": "none", "seed": str(seed), "step": "1", "entropy": "5"}
        for method, seeds in (("CL", 2), ("CACR (K = 1)", 3))
        for seed in range(seeds)
    ]
    assert RECIPES["cacr-fig3"].shown_seeds(Found({"": curves}, setting)) == "2 to 3 seeds, minimum to maximum"


@pytest.mark.parametrize(
    ("tables", "panels"), [(("optimizers",), 1), (("optimizers", "trials"), 1), (("trials", ""), 2)]
)
def test_a_search_shows_what_is_there_of_it(tables: tuple[str, ...], panels: int) -> None:
    recipe, setting = RECIPES["jcl-search"], Setting("laptop", "CIFAR", (0,))
    row = {"method": "moco-v2", "settings": "lr 1", "seed": "0", "linear": "40"}
    found = Found({table: [row] for table in tables}, setting)
    shown = [axes for axes in recipe.draw(found).axes if axes.get_title()]
    assert [bool(axes.lines) for axes in shown] == [True] * panels
    assert recipe.shown_seeds(found) == f"trials of seed 100, {'then seed 0' if '' in tables else 'minimum to maximum'}"


def test_recipes_share_their_runs() -> None:
    wanted = [
        next(job.identity for job in trainings(RECIPES[name], "laptop") if job.keys.items() >= keys.items())
        for name, keys in (
            ("jcl-fig2a", {"keys": "5"}),
            ("jcl-fig2b", {"lam": "4"}),
            ("jcl-fig2c", {"temperature": "0.2"}),
            ("jcl-epochs", {"method": "jcl", "length": "1"}),
            ("jcl-enqueue", {"enqueued": "mean", "lam": "4"}),
        )
    ]
    assert len(set(wanted)) == 1
    sharper = [
        next(job.identity for job in trainings(RECIPES[name], "laptop") if job.keys.items() >= keys.items())
        for name, keys in (
            ("cacr-table11", {"variant": "CACR"}),
            ("cacr-table13", {"k": "4", "t_neg": "2.0"}),
            ("cacr-table20", {"k": "4", "cost": "euclidean"}),
        )
    ]
    assert len(set(sharper)) == 1
    ablations = [
        next(job.identity for job in trainings(RECIPES[name], "laptop") if job.keys.items() >= keys.items())
        for name, keys in (
            ("cacr-table12", {"t_pos": "1"}),
            ("cacr-table13", {"k": "4", "t_neg": "0.9"}),
            ("cacr-fig3", {"method": "CACR (K = 4)", "imbalance": "none"}),
            ("cacr-fig9", {"k": "4"}),
            ("cacr-entropy", {"method": "K = 4, t⁻ = 0.9"}),
        )
    ]
    assert len(set(ablations)) == 1
    as_published = [
        next(job.identity for job in trainings(RECIPES[name], "paper") if job.keys.items() >= keys.items())
        for name, keys in (
            ("cacr-table13", {"k": "4", "t_neg": "0.9"}),
            ("cacr-fig3", {"method": "CACR (K = 4)", "imbalance": "none"}),
            ("cacr-entropy", {"method": "K = 4, t⁻ = 0.9"}),
        )
    ]
    assert len(set(as_published)) == 1


def test_the_final_runs_of_table_2_wait_for_all_trials_and_take_the_best(tmp_path: Path) -> None:
    recipe, store = RECIPES["cacr-table2"], Store(tmp_path, "cacr-table2", "", "50000/10/32")
    setting = Setting("laptop", "CIFAR", (1,))
    waiting = [job for job in recipe.jobs(setting, store) if job.waits_for]
    assert len(waiting) == 10
    for score, job in enumerate(job for job in recipe.jobs(setting, store) if job.keys["method"] == "CL"):
        if job.table == "trials":
            row = {**job.keys, "knn": "1", "linear": f"{50 - (score - 1) ** 2}", "seconds": "1"}
            store.add(job, recipe.columns("trials"), [row])
    ready = [job for job in recipe.jobs(setting, store) if not job.waits_for and not job.table]
    assert [(job.keys["method"], job.keys["lr"]) for job in ready] == [("CL", "0.06")] * 2


def test_a_search_draws_the_same_for_all_and_takes_the_best_of_each(tmp_path: Path) -> None:
    recipe, store = RECIPES["jcl-search"], Store(tmp_path, "jcl-search", "", "50000/10/32")
    setting = Setting("laptop", "CIFAR", (1, 2))
    jobs = [job for job in recipe.jobs(setting, store) if isinstance(job, Training)]
    trials = [job for job in jobs if job.table == "trials"]
    waiting = [job for job in jobs if not job.table]
    first = [job for job in jobs if job.table == "optimizers"]
    assert [len(each) for each in (first, trials, waiting)] == [10, 18, 6]
    assert {job.words[0] for job in first} == {"moco-v2"}
    assert len({job.identity for job in first}) == 10
    assert all(job.waits_for for job in waiting)
    for flag in ("--lr", "--temperature", "--momentum", "--queue-size", "--min-crop"):
        values = [[job.words[job.words.index(flag) + 1] for job in trials if job.keys["method"] == method]
                  for method in ("moco-v2", "vanilla", "jcl")]  # fmt: skip
        assert values[0] == values[1] == values[2]
        assert len(set(values[0])) > 1
    keys = {method: [job.words[job.words.index("--keys") + 1] for job in trials if job.keys["method"] == method]
            for method in ("vanilla", "jcl")}  # fmt: skip
    assert keys["vanilla"] == keys["jcl"]
    cost = {number: job.seconds for number, job in zip(keys["jcl"], trials[2::3], strict=True)}
    assert cost["3"] < cost["5"] < cost["8"]
    for job in trials:
        best = job.keys["method"] == "jcl" and job.keys["trial"] == "4"
        row = {**job.keys, "knn": "1", "linear": "50" if best else "40", "seconds": "1"}
        store.add(job, recipe.columns("trials"), [row])
    final = {job.keys["method"]: job for job in recipe.jobs(setting, store) if not job.table}
    assert not any(job.waits_for for job in final.values())
    chosen = {method: job.keys["settings"] for method, job in final.items()}
    of_trial = {(job.keys["method"], job.keys["trial"]): job.keys["settings"] for job in trials}
    assert chosen["jcl"] == of_trial["jcl", "4"]
    assert chosen["vanilla"] == of_trial["vanilla", "0"]  # the first of equals
    assert {job.keys["seed"] for job in trials}.isdisjoint({"1", "2"})


def test_what_is_compared_follows_the_scale_and_the_papers_figures() -> None:
    """A claim is not tested where the paper does not make it, nor turned round."""

    def pairs(name: str, scale: Scale) -> set[tuple[str, str]]:
        found = Found({}, Setting(scale, "CIFAR", (0,)))
        return {(each.first, each.second) for each in RECIPES[name].asked(found)}

    laptop, paper = pairs("cacr-fig8", "laptop"), pairs("cacr-fig8", "paper")
    assert ("CL, 64", "CACR (K = 1), 64") in laptop & paper
    assert ("CACR (K = 1), 128", "CL, 128") in laptop & paper
    assert ("CACR (K = 4), 768", "CMC (K = 4), 768") in paper
    assert not any(name.endswith(", 32") for pair in laptop for name in pair)
    assert pairs("jcl-epochs", "paper") == {
        ("JCL, M′ = 5, 200 epochs", "vanilla, M = 5, 200 epochs"),
        *((f"JCL, M′ = 5, {epochs} epochs", f"MoCo v2, {epochs} epochs") for epochs in (200, 300, 400, 500)),
    }
    assert ("JCL, M′ = 5, 125 steps", "vanilla, M = 5, 125 steps") in pairs("jcl-epochs", "laptop")
    laptop, paper = pairs("cacr-table2", "laptop"), pairs("cacr-table2", "paper")
    assert ("HN-CL, linear", "CACR (K = 1), linear") in paper - laptop  # 80.51 and 80.46
    assert ("CACR (K = 1)", "HN-CL") in paper & laptop


def test_curves_are_compared_at_every_snapshot_and_judged_on_average() -> None:
    recipe = RECIPES["cacr-fig10"]
    ahead_at_the_end = {"CACR (K = 4)": ("0", "40", "40", "56"), "CL": ("0", "45", "40", "45")}
    rows = [
        {"method": method, "imbalance": "none", "seed": str(seed), "step": step, "linear": f"{float(linear) + seed}"}
        for method, curve in ahead_at_the_end.items()
        for seed in (0, 1, 2)
        # A method of other batches has its snapshots at other steps.
        for step, linear in zip(("0", "1", "2", "3") if method == "CL" else ("0", "5", "10", "15"), curve, strict=True)
    ]
    found = Found({"": rows}, Setting("laptop", "CIFAR", (0, 1, 2)))
    *_, leads, compared = recipe.shown(found)
    assert leads.header == ("", "snapshot 1", "snapshot 2", "snapshot 3")
    cells = ("−5.0 [−5.0, −5.0] ✗", "+0.0 [+0.0, +0.0]", "+11.0 [+11.0, +11.0] ✓")
    assert leads.rows == (("CACR (K = 4) − CL", *cells),)
    # Of accuracies the paper does not say that they grow.
    assert compared.rows == (("CACR (K = 4) − CL", "above 0", "+2.0 [+2.0, +2.0]", "3", "yes"),)
    assert recipe.verdict(found) == "1 of 3 comparisons agrees with the paper, 2 were not run."


def test_entropies_that_fall_do_not_grow() -> None:
    recipe = RECIPES["cacr-fig3"]
    falling = [
        {"method": method, "imbalance": "none", "seed": str(seed), "step": str(step), "entropy": f"{high - step / 10}"}
        for method, high in (("CACR (K = 4)", 5.5), ("CL", 5.0))
        for seed in (0, 1, 2)
        for step in range(4)
    ]
    found = Found({"": falling}, Setting("laptop", "CIFAR", (0, 1, 2)))
    assert recipe.verdict(found) == "1 of 11 comparisons agrees with the paper, 2 contradict it, 8 were not run."
    assert {row[0]: row[-1] for row in recipe.shown(found)[-1].rows} == {
        **{f"{method}, snapshot 3 − {method}, snapshot 1": "no" for method in ("CL", "CACR (K = 4)")},
        "CACR (K = 4) − CL": "yes",
    }


def test_entropies_at_equal_t_change_one_thing_at_a_time() -> None:
    words = {job.keys["method"]: " ".join(job.words) for job in trainings(RECIPES["cacr-entropy"], "laptop")}
    at_two, at_less = words["K = 4, t⁻ = 2"], words["K = 4, t⁻ = 0.9"]
    assert at_two.replace("--t-neg 2.0", "--t-neg 0.9") == at_less != at_two
    assert words["K = 1, t⁻ = 2"].replace("--views 2", "--views 5") == at_two
    images = "50000/10/32"
    runs = [job.settings(images) for job in trainings(RECIPES["cacr-fig3"], "laptop")]
    mine = trainings(RECIPES["cacr-entropy"], "laptop")
    shared = [job.keys["method"] for job in mine if job.settings(images) in runs]
    assert shared == ["K = 1, t⁻ = 2", "K = 4, t⁻ = 0.9"]  # the rows of the paper's values are taken over


def test_uneven_sets_of_the_paper_have_their_own_values() -> None:
    words = {job.keys["method"]: " ".join(job.words) for job in trainings(RECIPES["cacr-fig5-cifar100"], "laptop")}
    assert "--t-neg 3.0" in words["CACR (K = 1)"]
    assert "--t-neg 2.0" in words["CACR (K = 4)"]
    assert all("--imbalance exponential" in each and "--augment cifar100" in each for each in words.values())


def test_final_runs_do_not_take_the_seed_of_the_trials(tmp_path: Path) -> None:
    recipe, store = RECIPES["cacr-table2"], Store(tmp_path, "cacr-table2")
    with pytest.raises(UserError, match=r"--seeds 2,0 has seed 0, with which .* others, as --seeds 1,2,3"):
        recipe.check(Setting("laptop", "CIFAR", (2, 0)), store)
    recipe.check(Setting("laptop", "CIFAR", (1, 2)), store)
    recipe.check(Setting("laptop", "CIFAR", (0,), quick=True), store)
    recipe.check(Setting("paper", "CIFAR", (0,)), store)


def test_the_papers_figures_stand_beside_those_of_its_own_set_only() -> None:
    for data, there in (("CIFAR", True), ("scenes", False)):
        mine = {"method": "CL", "imbalance": "none", "lr": "1", "seed": "1", "linear": "47", "knn": "45"}
        [table] = RECIPES["cacr-table2"].shown(Found({"": [mine]}, Setting("laptop", data, (1,))))
        assert ("the paper's linear" in table.header) == there
    row = {"method": "jcl", "length": "1", "seed": "0", "steps": "500", "linear": "49", "knn": "45"}
    *_, theirs = RECIPES["jcl-epochs"].tables(Found({"": [row]}, Setting("laptop", "CIFAR", (0,))))
    assert theirs.rows[1] == ("vanilla, M = 5", "80.9", "–", "–", "–")
    assert theirs.rows[2] == ("JCL, M′ = 5", "82", "83.9", "84.5", "85")


def test_remarks_at_the_papers_scale_begin_with_what_that_runs() -> None:
    for recipe in RECIPES.values():
        assert recipe.set_up(Setting("laptop", "CIFAR", ())) == recipe.remarks
        assert recipe.set_up(Setting("paper", "CIFAR", ())).startswith(
            f"As published: {recipe.paper_setup}. On a laptop: "
        )


def test_weights_of_a_query_stand_beside_its_own_pictures(tmp_path: Path) -> None:
    recipe, setting = RECIPES["cacr-fig6"], Setting("laptop", "CIFAR", (0, 1))
    jobs = recipe.jobs(setting, Store(tmp_path, recipe.name))
    rows = [row for number, job in enumerate(jobs) for row in made_up(recipe, job, number)]
    places = tuple(tmp_path / str(seed) for seed in setting.seeds)
    originals: dict[str, Any] = {
        f"original{at}": np.zeros((3, 5, 6), dtype=np.uint8) for at in (0, 9, 8, 7, 6, 1, 2, 3, 4)
    }
    for place, pictures in reversed(list(zip(places, (13 + 9, 0), strict=True))):  # the second seed's are there first
        place.mkdir()
        np.savez(place / TILES, tiles=np.zeros((13, 3, 4, 4), dtype=np.uint8), **originals)
        figure = recipe.draw(Found({"": rows}, setting, places))
        assert sum(bool(axes.images) for axes in figure.axes) == pictures


def test_what_costs_nothing_is_not_compared() -> None:
    recipe = RECIPES["cacr-table2"]
    level = accuracies({(method, part): 50.0 for method in ("CL", "CACR (K = 4)") for part in ("none", "exponential")})
    assert "so which one loses least is undecided" in recipe.verdict(level)
    assert not any(each.first.startswith("loss") for each in recipe.asked(level))
    lost = accuracies({(method, part): 50.0 if part == "none" else 40.0
                       for method in ("CL", "CACR (K = 4)") for part in ("none", "exponential")})  # fmt: skip
    assert "which one loses least" not in recipe.verdict(lost)
    assert any(each.first.startswith("loss") for each in recipe.asked(lost))


def accuracies(values: Mapping[tuple[str, str], float]) -> Found:
    """Rows of Table 2 for three seeds, which differ a little."""
    rows = [
        {"method": method, "imbalance": imbalance, "seed": str(seed), "linear": f"{value + 0.1 * (seed * salt % 3)}"}
        for salt, ((method, imbalance), value) in enumerate(values.items(), 1)
        for seed in (1, 2, 3)
    ]
    return Found({"": rows}, Setting("laptop", "CIFAR", (1, 2, 3)))
