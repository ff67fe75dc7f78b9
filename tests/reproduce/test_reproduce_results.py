"""The page of results is what the committed rows say, and these are what the recipes would run today."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from invented import made_up

from manyview.errors import UserError
from manyview.reproduce import RECIPES, Setting, write_results
from manyview.reproduce.job import SETTINGS as SETTINGS_FILE
from manyview.reproduce.job import Row, Store, known
from manyview.reproduce.page import SETTINGS, USUAL, content, sections

ROOT = Path(__file__).parents[2]


def test_every_committed_row_came_from_the_settings_that_its_recipe_has_now() -> None:
    unclaimed = {path: rows_in(path) for path in (ROOT / "results").glob("*.csv")}
    for recipe in RECIPES.values():
        for setting in SETTINGS.values():
            for images in USUAL.values() if recipe.takes_images else (None,):
                store = Store(ROOT / "results", recipe.name, setting.suffix, images)
                seeds = tuple(sorted({int(row["seed"]) for row in store.rows()})) or (0,)
                jobs = recipe.jobs(replace(setting, seeds=seeds), store)
                assert store.outdated(jobs) == []
                for job in jobs:
                    for row in store.rows_of(job):
                        unclaimed[store.path(job.table)].remove(row)
    assert not any(unclaimed.values())


def rows_in(path: Path) -> list[Row]:
    with open(path, newline="", encoding="utf-8") as file:
        return [known(row) for row in csv.DictReader(file)]


def test_the_page_shows_the_trials_of_table_2() -> None:
    trials = rows_in(ROOT / "results" / "cacr-table2-trials.csv")
    assert len(trials) == 15
    text = "\n".join(each.text for each in sections(ROOT / "results"))
    assert all(row["linear"] in text for row in trials)


def test_the_page_of_results_is_what_the_files_say(tmp_path: Path) -> None:
    copy = tmp_path / "RESULTS.md"
    copy.write_text((ROOT / "docs" / "RESULTS.md").read_text(encoding="utf-8"), encoding="utf-8")
    write_results(copy, ROOT / "results")
    text = copy.read_text(encoding="utf-8")
    assert text == (ROOT / "docs" / "RESULTS.md").read_text(encoding="utf-8")
    drawn, committed = ({path.name for path in (at / "figures").iterdir()} for at in (tmp_path, ROOT / "docs"))
    assert drawn == committed == set(re.findall(r"\]\(figures/(.+?)\)", text))
    assert set(re.findall(r"\]\(#(.+?)\)", text)) == set(re.findall(r'<a id="(.+?)">', text))  # by the overview


def test_a_page_has_a_section_for_each_set_of_images(tmp_path: Path) -> None:
    recipe, setting = RECIPES["jcl-fig2c"], Setting("laptop", "CIFAR", (0,))
    for images in ("50000/10/32", "50000/100/32"):
        store = Store(tmp_path, recipe.name, "", images)
        for number, job in enumerate(recipe.jobs(setting, store)):
            store.add(job, recipe.columns(), made_up(recipe, job, number))
    made = list(sections(tmp_path))
    headings = [each.heading.partition("2(c)")[2] for each in made]
    assert headings == [")", "), 50000 images of 100 classes, 32 px"]
    assert [each.name for each in made] == ["jcl-fig2c", "jcl-fig2c-50000-100-32"]
    columns = "draw,seed,steps,knn,linear,seconds"
    (tmp_path / "cmc-fig6.csv").write_text(f"{columns},run,images\n64,0,600,1,1,1,aa,50000/10\n")
    with pytest.raises(UserError, match=r"results on images '50000/10', which are not SAMPLES/CLASSES/SIDE"):
        list(sections(tmp_path))
    (tmp_path / "cmc-fig6.csv").write_text(f"{columns}\n64,0,600,1,1,1\n")
    with pytest.raises(UserError, match=r"cmc-fig6\.csv has no column 'run'"):
        list(sections(tmp_path))


def test_the_page_leaves_out_rows_that_no_longer_count_and_says_so(tmp_path: Path) -> None:
    recipe, setting = RECIPES["jcl-fig2c"], Setting("laptop", "CIFAR", (0, 1))
    store = Store(tmp_path, recipe.name, "", "50000/10/32")
    for number, job in enumerate(recipe.jobs(setting, store)):
        store.add(job, recipe.columns(), made_up(recipe, job, number))
    assert "--seeds 0,1 " in next(sections(tmp_path)).text
    path = store.path()
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    lost = [[*line[:-2], "0" * 8, line[-1]] if line[1] == "1" else line for line in lines]
    path.write_text("".join(f"{','.join(line)}\n" for line in lost))
    text = next(sections(tmp_path)).text
    assert "--seeds 0 " in text
    assert "**Not counted:** 5 rows came from other settings than today's (settings unknown)." in text


def test_a_recipe_whose_rows_all_came_from_other_settings_is_shown_as_such(tmp_path: Path) -> None:
    recipe, setting = RECIPES["jcl-fig2c"], Setting("laptop", "CIFAR", (0,))
    store = Store(tmp_path, recipe.name, "", "50000/10/32")
    for number, job in enumerate(recipe.jobs(setting, store)):
        store.add(job, recipe.columns(), made_up(recipe, job, number))
    settings = tmp_path / SETTINGS_FILE
    settings.write_text(settings.read_text(encoding="utf-8").replace('"batch_size": 256', '"batch_size": 64'))
    [section] = sections(tmp_path)
    assert section.text == "**Not counted:** 5 rows came from other settings than today's (batch_size 64, now 256)."
    assert not section.counts
    assert "figures/" not in section.markdown()
    assert "`jcl-fig2c`" in content([section]).partition("Not run yet")[2].partition("\n")[0]


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(UserError, match=r"--write-results .*<!-- recipes -->"):
        write_results(page, ROOT / "results")
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_a_page_is_not_emptied_where_there_are_no_results(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- recipes -->\nkept\n<!-- /recipes -->\n")
    with pytest.raises(UserError, match=r"--results .*elsewhere holds no results of a recipe: name the directory"):
        write_results(page, tmp_path / "elsewhere")
    assert "kept" in page.read_text()
