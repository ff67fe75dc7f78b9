"""What recipes leave behind: a figure, its numbers and a page of each, and docs/RESULTS.md of all that were run."""

import io
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from matplotlib.figure import Figure

import manyview
from manyview.atomic import replacing
from manyview.diagnose.finding import LEVELS, Finding
from manyview.diagnose.rules import findings
from manyview.encoders import load
from manyview.errors import UserError
from manyview.report.html import Markup, document, embedded, join, table, tag
from manyview.report.summary import finding_list
from manyview.report.versus import compare, neighbours_of_two
from manyview.reproduce.job import Job, Row, Store, place, to_csv
from manyview.reproduce.looks import tested_images
from manyview.reproduce.markdown import fill
from manyview.reproduce.markdown import table as markdown_table
from manyview.reproduce.recipe import Found, Recipe
from manyview.reproduce.recipes import RECIPES
from manyview.reproduce.resolved import Images
from manyview.reproduce.runner import FAILURE, Outcome, duration
from manyview.reproduce.setting import Setting
from manyview.run.device import pick_device
from manyview.run.files import CONFIG, ENCODER, PAGE

PER_INCH = 15  # letters of the title


def write_files(recipe: Recipe, found: Found, outcome: Outcome, out: Path, directory: Path) -> None:
    """figure.png, figure.csv (one file for each table of results) and report.html."""
    picture, numbers = png(titled(recipe, found)), Store(directory, "figure")
    page = render(recipe, found, outcome, picture, out=out, directory=directory)
    files = {directory / "figure.png": picture, directory / PAGE: page.encode(errors="backslashreplace")}
    files |= {numbers.path(name): to_csv(recipe.columns(name), rows).encode() for name, rows in found.rows.items()}
    for path, content in files.items():
        with replacing(path) as file:
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


def judgement(recipe: Recipe, found: Found) -> tuple[str, str]:
    """What both pages say below the tables, in Markdown."""
    claimed = f"**The paper:** {recipe.claim} **Expected on a laptop:** {recipe.expectation}"
    return claimed, f"**Found:** {recipe.verdict(found)}"


def render(recipe: Recipe, found: Found, outcome: Outcome, picture: bytes, *, out: Path, directory: Path) -> str:
    places = [(job, place(job, found.setting, out)) for job in outcome.jobs]
    runs = {str(job): where / "run" for job, where in places if (where / "run" / CONFIG).exists()}
    nothing = f"No run of this recipe is under {out.name}: only its results are known."
    image = embedded(picture, "png", recipe.title, style="max-width: 100%; background: white")
    tables = (table(each.caption, each.header, each.rows) for each in recipe.shown(found))
    words = (*judgement(recipe, found), f"**Set-up:** {recipe.set_up(found.setting)}")
    rows = [[str(job), _state(job, outcome), _link(where, directory)] for job, where in places]
    sections = [
        ("figure", "Figure", tag("figure", image)),
        ("results", "Our numbers beside the paper's", join(*tables)),
        ("verdict", "Does the claim hold?", join(*map(paragraph, words))),
        ("diagnosis", "Diagnosis", finding_list(over_runs(runs), nothing)),
        *_neighbours(recipe, outcome, found, out),
        ("runs", "Runs", table("Every run of the recipe", ["run", "state", "page"], rows)),
    ]
    return document(
        f"{recipe.name}: {recipe.where}",
        lambda links: _header(recipe, found, outcome, links),
        sections,
        f"Written by manyview {manyview.__version__} from files of results; it needs no network.",
    )


def _header(recipe: Recipe, found: Found, outcome: Outcome, links: Markup) -> Markup:
    setting, left = found.setting, len(outcome.jobs) - len(outcome.done)
    seeds = f"seed{'s' * (len(setting.seeds) > 1)} {', '.join(map(str, setting.seeds))}"
    about = [recipe.where, f"recipe {recipe.name}", f"{setting.scale} scale", setting.data, seeds]
    warnings = [f"Incomplete: {left} of {len(outcome.jobs)} runs are missing or failed."] * bool(left)
    warnings += ["A quick test: few steps of small batches. The numbers mean nothing."] * setting.quick
    return tag(
        "header",
        tag("h1", recipe.title),
        tag("p", " · ".join(filter(None, about)), class_="soft"),
        *(tag("p", each, class_="warning") for each in warnings),
        links,
    )


def paragraph(text: str) -> Markup:
    """Of Markdown, of which recipes use `code` and **strong** words."""
    parts = re.split(r"(`[^`]+`|\*\*[^*]+\*\*)", text)
    kinds = {"`": "code", "*": "strong"}
    return tag("p", *(tag(kinds[part[0]], part.strip("`*")) if odd % 2 else part for odd, part in enumerate(parts)))


def _neighbours(recipe: Recipe, outcome: Outcome, found: Found, out: Path) -> list[tuple[str, str, Markup]]:
    """Two encoders on test images, where the paper compares any and both are still at hand."""
    rivals, setting = recipe.rivals(found, outcome.done), found.setting
    runs = [place(job, setting, out) / "run" for job in rivals or ()]
    if rivals is None or not all((run / ENCODER).exists() for run in runs):
        return []
    first, second = (load(run).to(pick_device(setting.device)) for run in runs)
    seen = compare(tested_images(setting), first, second, (str(rivals[0]), str(rivals[1])))
    return [("versus", "Two encoders", neighbours_of_two(seen))]


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


MARKER = "recipes"
PICTURES = "figures"  # the directory of the figures, beside the page
# At which scale and on what; the data's name decides how files of results are called.
SETTINGS = {
    "": Setting("laptop", "CIFAR", ()),
    " on `scenes`": Setting("laptop", "scenes", ()),
    ", the paper's set-up": Setting("paper", "CIFAR", ()),
}
USUAL = {"CIFAR": "50000/10/32", "scenes": "10000/10/32"}  # images that need no mention


@dataclass(frozen=True)
class Section:
    """One recipe on one set of images, as far as it was run."""

    recipe: Recipe
    found: Found
    name: str  # of its figure, and of the place on the page that the overview leads to
    heading: str
    text: str

    @property
    def counts(self) -> bool:
        """Whether it has a row that came from today's settings."""
        return any(self.found.rows.values())

    def markdown(self) -> str:
        figure = f"![{self.recipe.title}]({PICTURES}/{self.name}.png)\n\n" if self.counts else ""
        return f'<a id="{self.name}"></a>\n{self.heading}\n\n{figure}{self.text}'

    def row(self) -> tuple[str, ...]:
        """The recipe in a line, with the first sentence of its verdict."""
        verdict = self.recipe.verdict(self.found).partition(". ")[0].rstrip(".") + "."
        seeds = ", ".join(map(str, self.found.setting.seeds)) or "none"
        return f"[{self.recipe.where}](#{self.name})", self.recipe.claim, verdict, seeds


def write_results(page: Path, results: Path) -> None:
    """Replaces the part of `page` between its markers by what the files of results say now, and draws the figures."""
    try:
        text = page.read_text(encoding="utf-8")
        fill(text, MARKER, "")
    except (OSError, ValueError) as error:
        raise UserError(
            f"--write-results {page} cannot be filled ({error}): name a page with the lines <!-- {MARKER} --> and "
            f"<!-- /{MARKER} -->"
        ) from error
    made = list(sections(results))
    if not made:
        raise UserError(f"--results {results} holds no results of a recipe: name the directory of their CSV files")
    for each in filter(lambda section: section.counts, made):
        with replacing(page.parent / PICTURES / f"{each.name}.png") as file:
            file.write(png(titled(each.recipe, each.found)))
    with replacing(page) as file:
        file.write(fill(text, MARKER, content(made)).encode())


def content(made: list[Section]) -> str:
    """What is between the markers: an overview, what is missing, and the sections."""
    overview = markdown_table(("", "the paper's claim", "found here", "seeds"), [each.row() for each in made])
    run = {each.recipe.name for each in made if each.counts}
    nothing = [f"`{name}`" for name in RECIPES if name not in run]
    missing = f"**Not run yet:** {', '.join(nothing) or 'nothing'}."
    return "\n\n".join([overview, missing, *(each.markdown() for each in made)])


def sections(results: Path) -> Iterator[Section]:
    """One for each set of images that the files of a recipe have rows of."""
    for recipe, (words, setting) in product(RECIPES.values(), SETTINGS.items()):
        store = Store(results, recipe.name, setting.suffix, "" if recipe.takes_images else None)
        sets: list[str | None] = [None]
        if recipe.takes_images:
            tables = {job.table for job in recipe.jobs(replace(setting, seeds=(0,)), store)}
            sets = [*sorted({images for name in tables for images in store.sets(name)})]
        for images in sets:
            yield from section(recipe, words, setting, replace(store, images=images))


def section(recipe: Recipe, words: str, setting: Setting, store: Store) -> list[Section]:
    """Empty where nothing was run in this setting."""
    name, data = f"{recipe.name}{setting.suffix}", f" --data {setting.data}" * recipe.takes_images
    if store.images not in (None, USUAL[setting.data]):
        like = Images(store.images)
        words += f", {len(like)} images of {len(like.classes)} classes, {like.median_side} px"
        name, data = f"{name}-{store.images.replace('/', '-')}", " --data DATA"
    setting = of_seeds(setting, store.rows())
    jobs = recipe.jobs(setting, store)
    outdated = [f"**Not counted:** {rows}." for rows in left_out(store.outdated(jobs))]
    setting = of_seeds(setting, recipe.found(jobs, store, setting)[""])
    jobs = recipe.jobs(setting, store)
    found = recipe.found(jobs, store, setting)
    heading = f"### {recipe.title} ({recipe.where}){words}"
    if not any(found.rows.values()):
        return [Section(recipe, found, name, heading, each) for each in outdated]
    done = [rows[0] for job in jobs if (rows := store.rows_of(job))]
    scale = "" if setting.scale == "laptop" else " --scale paper"
    seeds = ",".join(map(str, setting.seeds)) or "0"
    parts = [
        f"```\nmanyview reproduce {recipe.name}{scale}{data} --seeds {seeds} --results results\n```",
        f"{len(done)} of {len(jobs)} runs, {duration(sum(float(row['seconds']) for row in done))} of work in all. "
        f"{recipe.set_up(setting)}",
        *outdated,
        *(f"{each.caption}:\n\n{markdown_table(each.header, each.rows)}" for each in recipe.shown(found)),
        *judgement(recipe, found),
    ]
    return [Section(recipe, found, name, heading, "\n\n".join(parts))]


def of_seeds(setting: Setting, rows: Sequence[Row]) -> Setting:
    """The same with the seeds of these rows."""
    return replace(setting, seeds=tuple(sorted({int(row["seed"]) for row in rows})))


def left_out(outdated: list[str]) -> list[str]:
    """How many rows do not count, and why, where there are any."""
    rows = f"{len(outdated)} row{'s' * (len(outdated) > 1)}"
    return [f"{rows} came from other settings than today's ({outdated[0]})"] if outdated else []


_NAMED = 3  # so many runs are named


def over_runs(runs: Mapping[str, Path]) -> list[Finding]:
    """One finding for each subject and level, worst first, with the text of its first run."""
    alike: dict[tuple[str, str], dict[str, Finding]] = {}
    for name, run in runs.items():
        for finding in findings(run):
            alike.setdefault((finding.level, finding.about), {})[name] = finding
    together = []
    for same in alike.values():
        first, finding = next(iter(same.items()))
        where = "; ".join(same)
        if len(same) == len(runs) > 1:
            where = f"All {len(runs)} runs, for example {first}"
        elif len(same) > _NAMED:
            where = f"{len(same)} of {len(runs)} runs, for example {first}"
        together.append(replace(finding, text=f"{where}: {finding.text}"))
    return sorted(together, key=lambda finding: LEVELS.index(finding.level))
