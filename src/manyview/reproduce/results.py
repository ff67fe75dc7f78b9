"""docs/RESULTS.md from the files of results: all that stands between its markers is written here."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from manyview.atomic import replacing
from manyview.errors import UserError
from manyview.reproduce.markdown import fill, table
from manyview.reproduce.present import png, titled
from manyview.reproduce.recipe import Found, Recipe
from manyview.reproduce.recipes import RECIPES
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
USUAL = {"CIFAR": "50000/10", "scenes": "10000/10"}  # images that go without saying


@dataclass(frozen=True)
class Section:
    """One recipe on one set of images, as far as it was run."""

    recipe: Recipe
    found: Found
    name: str
    """Of its figure, and of the place on the page that the overview leads to."""
    text: str
    """Without the figure."""

    def markdown(self) -> str:
        heading, _, rest = self.text.partition("\n")
        figure = f"![{self.recipe.title}]({PICTURES}/{self.name}.png)"
        return f'<a id="{self.name}"></a>\n{heading}\n\n{figure}\n{rest}'

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
    for each in made:
        with replacing(page.parent / PICTURES / f"{each.name}.png") as file:
            file.write(png(titled(each.recipe, each.found)))
    with replacing(page) as file:
        file.write(fill(text, MARKER, content(made)).encode())


def content(made: list[Section]) -> str:
    """What stands between the markers: an overview, the sections, and what is missing."""
    overview = table(("", "the paper's claim", "found here", "seeds"), [each.row() for each in made])
    run = {each.recipe.name for each in made}
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
            number, _, classes = images.partition("/")
            what = f"{words}, {number} images of {classes} classes"
            made += section(recipe, f"{name}-{number}-{classes}", what, " --data DATA", setting, of_them)
    return made


def section(recipe: Recipe, name: str, words: str, data: str, setting: Setting, store: Store) -> list[Section]:
    """Empty where nothing was run in this setting."""
    whole = replace(setting, seeds=tuple(sorted({int(row["seed"]) for row in store.rows()})))
    counting = recipe.found(recipe.jobs(whole, store), store, whole)[""]  # without rows that flags have left behind
    seeds = sorted({int(row["seed"]) for row in counting})
    whole = replace(setting, seeds=tuple(seeds))
    jobs = recipe.jobs(whole, store)
    found = recipe.found(jobs, store, whole)
    if not found.rows or not any(found.rows.values()):
        return []
    took = sum(float(store.rows_of(job)[0]["seconds"]) for job in jobs if store.rows_of(job))
    scale = "" if setting.scale == "laptop" else " --scale paper"
    asked = ",".join(map(str, seeds)) or "0"
    command = f"manyview reproduce {recipe.name}{scale}{data} --seeds {asked} --results results"
    parts = [
        f"### {recipe.title} ({recipe.where}){words}",
        f"```\n{command}\n```",
        f"{len([job for job in jobs if store.rows_of(job)])} of {len(jobs)} runs, {duration(took)} of work in all. "
        f"{recipe.set_up(setting)}",
    ]
    for each in recipe.shown(found):
        parts.append(f"{each.caption}:\n\n{table(each.header, each.rows)}")
    parts.append(f"**The paper:** {recipe.claim} **Expected on a laptop:** {recipe.expectation}")
    parts.append(f"**Found:** {recipe.verdict(found)}")
    return [Section(recipe, found, name, "\n\n".join(parts))]
