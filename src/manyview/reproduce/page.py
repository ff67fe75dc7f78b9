"""What a recipe leaves behind: the figure, its numbers, and one page with everything."""

import base64
import io
import os
import textwrap
from pathlib import Path

from matplotlib.figure import Figure

import manyview
from manyview.atomic import replacing
from manyview.encoders import load
from manyview.report.html import Markup, document, join, table, tag
from manyview.report.summary import finding_list
from manyview.report.versus import compare, neighbours_of_two
from manyview.reproduce.diagnosis import over_runs
from manyview.reproduce.job import Job, place
from manyview.reproduce.looks import tested_images
from manyview.reproduce.recipe import Found, Recipe
from manyview.reproduce.runner import FAILURE, Outcome
from manyview.reproduce.store import to_csv
from manyview.reproduce.verdict import Table
from manyview.run.device import pick_device
from manyview.run.files import CONFIG, ENCODER, PAGE

__all__ = ["png", "titled", "write_files"]

PER_INCH = 15  # letters of the title


def write_files(recipe: Recipe, found: Found, outcome: Outcome, out: Path, directory: Path) -> None:
    """figure.png, figure.csv (one file for each table of results) and report.html."""
    picture = png(titled(recipe, found))
    files = {"figure.png": picture}
    for name, rows in found.rows.items():
        files[f"figure{'-' if name else ''}{name}.csv"] = to_csv(recipe.columns(name), rows).encode()
    files[PAGE] = render(recipe, found, outcome, picture, out=out, directory=directory).encode()
    for name, content in files.items():
        with replacing(directory / name) as file:
            file.write(content)


def titled(recipe: Recipe, found: Found) -> Figure:
    """The figure with a title that says what it is without the page."""
    figure, setting = recipe.draw(found), found.setting
    quick = ", a quick test" if setting.quick else ""
    images = f" on {setting.set_name}" if recipe.takes_images else ""
    words = f"{recipe.where}: {setting.scale}{images}{quick}, {recipe.shown_seeds(found)}"
    figure.suptitle(textwrap.fill(words, int(PER_INCH * figure.get_figwidth())), fontsize=9, color="#555")
    return figure


def png(figure: Figure) -> bytes:
    """The same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def render(recipe: Recipe, found: Found, outcome: Outcome, picture: bytes, *, out: Path, directory: Path) -> str:
    data = base64.b64encode(picture).decode("ascii")
    image = tag(
        "img", src=f"data:image/png;base64,{data}", alt=recipe.title, style="max-width: 100%; background: white"
    )
    sections = [
        ("figure", "Figure", tag("figure", image)),
        ("results", "Our numbers beside the paper's", join(*(_table(each) for each in recipe.shown(found)))),
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
        warning = tag("p", f"Incomplete: {left} of {len(outcome.jobs)} runs are missing or failed.", class_="warning")
    if setting.quick:
        warning = join(
            warning, tag("p", "A quick test: few steps of small batches. The numbers mean nothing.", class_="warning")
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
