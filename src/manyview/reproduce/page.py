"""The page of a recipe: figure, tables, verdict, and its runs with links to their own pages."""

import base64
import os
from pathlib import Path

import manyview
from manyview.encoders import load
from manyview.report.html import Markup, document, join, table, tag
from manyview.report.summary import finding_list
from manyview.report.versus import compare, neighbours_of_two
from manyview.reproduce.diagnosis import over_runs
from manyview.reproduce.job import Job, place
from manyview.reproduce.looks import tested_images
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.runner import FAILURE, Outcome
from manyview.run.build import pick_device
from manyview.run.files import CONFIG, ENCODER, PAGE

__all__ = ["render"]


def render(recipe: Recipe, found: Found, outcome: Outcome, picture: bytes, *, out: Path, directory: Path) -> str:
    data = base64.b64encode(picture).decode("ascii")
    image = tag(
        "img", src=f"data:image/png;base64,{data}", alt=recipe.title, style="max-width: 100%; background: white"
    )
    sections = [
        ("figure", "Figure", tag("figure", image)),
        ("results", "Our figures beside the paper's", join(*(_table(each) for each in recipe.shown(found)))),
        ("verdict", "Does the claim hold?", _verdict(recipe, found)),
        ("diagnosis", "Diagnosis", _diagnosis(outcome, found, out)),
        *_neighbours(recipe, outcome, found, out),
        ("runs", "Runs", _runs(outcome, found, out, directory)),
    ]
    return document(
        f"{recipe.name}: {recipe.where}",
        lambda links: _header(recipe, found, outcome, links),
        sections,
        f"Written by manyview {manyview.__version__} from files of results; it needs no network.",
    )


def _header(recipe: Recipe, found: Found, outcome: Outcome, links: Markup) -> Markup:
    setting = found.setting
    seeds = f"seed{'s' * (len(setting.seeds) > 1)} {', '.join(map(str, setting.seeds))}"
    facts = " · ".join([f"{setting.scale} scale", *([setting.data] if setting.data else []), seeds])
    warning = Markup()
    if not outcome.whole:
        left = len(outcome.jobs) - len(outcome.done)
        warning = tag("p", f"Not whole: {left} of {len(outcome.jobs)} runs are missing or failed.", class_="warning")
    if setting.quick:
        warning = join(
            warning, tag("p", "A try-out: few steps of small batches. The figures mean nothing.", class_="warning")
        )
    return tag(
        "header",
        tag("h1", recipe.title),
        tag("p", f"{recipe.where} · recipe {recipe.name} · {facts}", class_="soft"),
        warning,
        links,
    )


def _table(each: Table) -> Markup:
    return table(each.caption, list(each.header), [list(row) for row in each.rows])


def _verdict(recipe: Recipe, found: Found) -> Markup:
    parts = [
        ("The paper: ", recipe.claim),
        ("Expected on a laptop: ", recipe.expectation),
        ("Found: ", recipe.verdict(found)),
    ]
    parts += [("Set-up: ", recipe.set_up(found.setting))]
    return join(*(tag("p", tag("strong", start), _with_code(text)) for start, text in parts))


def _with_code(text: str) -> Markup:
    """Recipes write names as Markdown does, for docs/RESULTS.md."""
    return join(*(tag("code", part) if odd % 2 else part for odd, part in enumerate(text.split("`"))))


def _diagnosis(outcome: Outcome, found: Found, out: Path) -> Markup:
    runs = {str(job): place(job, found.setting, out) / "run" for job in outcome.jobs}
    here = {name: run for name, run in runs.items() if (run / CONFIG).exists()}
    return finding_list(over_runs(here), f"No run of this recipe is under {out.name}: only its results are known.")


def _neighbours(recipe: Recipe, outcome: Outcome, found: Found, out: Path) -> list[tuple[str, str, Markup]]:
    """Two encoders on test images, where the paper compares any and both are still at hand."""
    rivals, setting = recipe.rivals(found, outcome.done), found.setting
    runs = [place(job, setting, out) / "run" for job in rivals or ()]
    if rivals is None or not all((run / ENCODER).exists() for run in runs):
        return []
    first, second = (load(run).to(pick_device(setting.device)) for run in runs)
    seen = compare(tested_images(setting), first, second, (str(rivals[0]), str(rivals[1])))
    return [("versus", "Two encoders", neighbours_of_two(seen))]


def _runs(outcome: Outcome, found: Found, out: Path, directory: Path) -> Markup:
    rows = []
    for job in outcome.jobs:
        where = place(job, found.setting, out)
        rows.append([str(job), _state(job, outcome), _link(where, directory)])
    return table("Every run of the recipe", ["run", "state", "page"], rows)


def _state(job: Job, outcome: Outcome) -> str:
    if job in outcome.done:
        return "done"
    if str(job) in outcome.failed:
        return f"failed: {outcome.failed[str(job)]}"
    return f"waits for {job.waits_for}" if job.waits_for else "not done"


def _link(where: Path, directory: Path) -> str:
    for name, words in ((FAILURE, "why it failed"), (f"run/{PAGE}", "its page")):
        if (where / name).exists():
            return tag("a", words, href=Path(os.path.relpath(where / name, directory)).as_posix())
    return "–"
