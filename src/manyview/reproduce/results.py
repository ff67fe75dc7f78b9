"""docs/RESULTS.md from the files of results: this writes all that is between its markers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from manyview.atomic import replacing
from manyview.errors import UserError
from manyview.reproduce.markdown import fill, table
from manyview.reproduce.page import png, titled
from manyview.reproduce.recipe import Found, Recipe
from manyview.reproduce.recipes import RECIPES
from manyview.reproduce.resolved import Images
from manyview.reproduce.runner import duration
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store

__all__ = ["write_results"]

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
    name: str
    """Of its figure, and of the place on the page that the overview leads to."""
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
    overview = table(("", "the paper's claim", "found here", "seeds"), [each.row() for each in made])
    run = {each.recipe.name for each in made if each.counts}
    nothing = [f"`{name}`" for name in RECIPES if name not in run]
    missing = f"**Not run yet:** {', '.join(nothing) or 'nothing'}."
    return "\n\n".join([overview, missing, *(each.markdown() for each in made)])


def sections(results: Path) -> Iterator[Section]:
    for recipe in RECIPES.values():
        for words, setting in SETTINGS.items():
            yield from by_images(recipe, words, setting, results)


def by_images(recipe: Recipe, words: str, setting: Setting, results: Path) -> list[Section]:
    """A section for each set of images that the files have rows of."""
    name = f"{recipe.name}{setting.suffix}"
    if not recipe.takes_images:
        return section(recipe, name, words, "", setting, Store(results, recipe.name, setting.suffix))
    store = Store(results, recipe.name, setting.suffix, "")
    tables = {job.table for job in recipe.jobs(replace(setting, seeds=(0,)), store)}
    made = []
    for images in sorted({images for name in tables for images in store.sets(name)}):
        of_them = replace(store, images=images)
        if images == USUAL[setting.data]:
            made += section(recipe, name, words, f" --data {setting.data}", setting, of_them)
        else:
            like = Images(images)
            what = f"{words}, {len(like)} images of {len(like.classes)} classes, {like.median_side} px"
            made += section(recipe, f"{name}-{images.replace('/', '-')}", what, " --data DATA", setting, of_them)
    return made


def section(recipe: Recipe, name: str, words: str, data: str, setting: Setting, store: Store) -> list[Section]:
    """Empty where nothing was run in this setting."""
    setting = replace(setting, seeds=tuple(sorted({int(row["seed"]) for row in store.rows()})))
    jobs = recipe.jobs(setting, store)
    outdated = left_out(store.outdated(jobs))
    counting = recipe.found(jobs, store, setting)[""]
    setting = replace(setting, seeds=tuple(sorted({int(row["seed"]) for row in counting})))
    jobs = recipe.jobs(setting, store)
    found = recipe.found(jobs, store, setting)
    heading = f"### {recipe.title} ({recipe.where}){words}"
    if not any(found.rows.values()):
        return [Section(recipe, found, name, heading, outdated)] if outdated else []
    done = [rows[0] for job in jobs if (rows := store.rows_of(job))]
    scale = "" if setting.scale == "laptop" else " --scale paper"
    seeds = ",".join(map(str, setting.seeds)) or "0"
    parts = [
        f"```\nmanyview reproduce {recipe.name}{scale}{data} --seeds {seeds} --results results\n```",
        f"{len(done)} of {len(jobs)} runs, {duration(sum(float(row['seconds']) for row in done))} of work in all. "
        f"{recipe.set_up(setting)}",
        *([outdated] if outdated else []),
        *(f"{each.caption}:\n\n{table(each.header, each.rows)}" for each in recipe.shown(found)),
        f"**The paper:** {recipe.claim} **Expected on a laptop:** {recipe.expectation}",
        f"**Found:** {recipe.verdict(found)}",
    ]
    return [Section(recipe, found, name, heading, "\n\n".join(parts))]


def left_out(outdated: list[str]) -> str:
    """Rows that do not count, and why."""
    if not outdated:
        return ""
    rows = f"{len(outdated)} row{'s' * (len(outdated) > 1)}"
    return f"**Not counted:** {rows} came from other settings than today's ({outdated[0]})."
