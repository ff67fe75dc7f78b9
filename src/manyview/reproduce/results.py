"""docs/RESULTS.md from the files of results: what stands between its markers is written here, the rest by hand."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from manyview.atomic import replacing
from manyview.errors import UserError
from manyview.reproduce.markdown import fill, table
from manyview.reproduce.recipe import Recipe
from manyview.reproduce.recipes import RECIPES
from manyview.reproduce.runner import duration
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store

__all__ = ["write_results"]

MARKER = "recipes"
# At which scale and on what; the data's name decides how files of results are called.
SETTINGS = {
    "": Setting("laptop", "CIFAR", ()),
    " on `scenes`": Setting("laptop", "scenes", ()),
    ", the paper's set-up": Setting("paper", "CIFAR", ()),
}
USUAL = {"CIFAR": "50000/10", "scenes": "10000/10"}  # images that go without saying


def write_results(page: Path, results: Path) -> None:
    """Replaces the part of `page` between its markers by what the files of results say now."""
    try:
        text = page.read_text(encoding="utf-8")
        text = fill(text, MARKER, "\n\n".join(sections(results)))
    except (OSError, ValueError) as error:
        raise UserError(
            f"--write-results {page} cannot be filled ({error}): name a page with the lines <!-- {MARKER} --> and "
            f"<!-- /{MARKER} -->"
        ) from error
    with replacing(page) as file:
        file.write(text.encode())


def sections(results: Path) -> Iterator[str]:
    nothing = []
    for recipe in RECIPES.values():
        found = [each for words, setting in SETTINGS.items() for each in by_images(recipe, words, setting, results)]
        yield from found
        if not found:
            nothing.append(f"`{recipe.name}`")
    yield f"**Not run yet:** {', '.join(nothing) or 'nothing'}."


def by_images(recipe: Recipe, words: str, setting: Setting, results: Path) -> list[str]:
    """A section for each set of images that the files have rows of."""
    if not recipe.takes_images:
        return section(recipe, words, "", setting, Store(results, recipe.name, setting.suffix))
    store = Store(results, recipe.name, setting.suffix, "")
    tables = {job.table for job in recipe.jobs(replace(setting, seeds=(0,)), store)}
    made = []
    for images in sorted({images for name in tables for images in store.sets(name)}):
        of_them = replace(store, images=images)
        if images == USUAL[setting.data]:
            made += section(recipe, words, f" --data {setting.data}", setting, of_them)
        else:
            number, _, classes = images.partition("/")
            what = f"{words}, {number} images of {classes} classes"
            made += section(recipe, what, " --data DATA", setting, of_them)
    return made


def section(recipe: Recipe, words: str, data: str, setting: Setting, store: Store) -> list[str]:
    """Empty where nothing was run in this setting."""
    seeds = sorted({int(row["seed"]) for row in store.rows()})
    whole = Setting(setting.scale, setting.data, tuple(seeds))
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
        f"{recipe.remarks}".strip(),
    ]
    for each in recipe.shown(found):
        parts.append(f"{each.caption}:\n\n{table(each.header, each.rows)}")
    parts.append(f"**The paper:** {recipe.claim} **Expected here:** {recipe.expectation}")
    parts.append(f"**Found:** {recipe.verdict(found)}")
    return ["\n\n".join(parts)]
