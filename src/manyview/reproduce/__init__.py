"""Tables and figures of the papers as recipes: what to run, what the paper found, what we found."""

from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from manyview.data import open_source
from manyview.errors import Stopped, UserError
from manyview.reproduce.job import Store, place
from manyview.reproduce.page import left_out, write_files, write_results
from manyview.reproduce.recipe import Recipe
from manyview.reproduce.recipes import RECIPES, find
from manyview.reproduce.resolved import images_in_words
from manyview.reproduce.runner import TRACEBACK, Outcome, carry_out, done_of, duration
from manyview.reproduce.setting import Scale, Setting
from manyview.run.files import PAGE

__all__ = ["RECIPES", "Outcome", "Scale", "Setting", "find", "list_recipes", "reproduce", "write_results"]


def list_recipes(console: Console) -> None:
    columns = Column("recipe", no_wrap=True), "what", Column("laptop, one seed", no_wrap=True)
    grid = Grid(*columns, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for recipe in RECIPES.values():
        grid.add_row(recipe.name, f"{recipe.where}: {recipe.title}", cost(recipe))
    console.print(grid)
    console.print(
        "Times: CIFAR-10, two quiet cores. Recipes that share --results or --out share their runs. "
        "`reproduce RECIPE --scale paper` runs the paper's own set-up, for GPUs, and describes it before it starts."
    )


def cost(recipe: Recipe) -> str:
    setting = Setting("laptop", "", (0,))
    jobs = recipe.jobs(setting, Store(Path("/nonexistent"), recipe.name))
    return f"{len(jobs)} run{'s' * (len(jobs) > 1)}, {duration(sum(job.seconds for job in jobs))}"


def reproduce(recipe: Recipe, setting: Setting, out: Path, results: Path, console: Console) -> Path:
    """Runs what is left of a recipe, then writes figure, table and page; returns the page."""
    images = images_of(recipe, setting) if recipe.takes_images else ""
    setting = replace(setting, images=images, data=setting.data if recipe.takes_images else "")
    store = Store(results, recipe.name, setting.suffix, setting.images or None)
    for name in {job.table for job in recipe.jobs(setting, store)}:
        store.check(name, recipe.columns(name))
    recipe.check(setting, store)
    announce(recipe, setting, out, store, console)
    try:
        outcome = carry_out(recipe, setting, out, store, console)
    except (Stopped, KeyboardInterrupt) as stop:
        jobs = recipe.jobs(setting, store)
        done = len(done_of(jobs, recipe, store))
        number = stop.number if isinstance(stop, Stopped) else 2
        raise Stopped(
            number, f"{recipe.name} stopped with {done} of {len(jobs)} runs done; the same command continues it"
        ) from stop
    places = tuple(place(job, setting, out) for job in outcome.done)
    found = recipe.found(outcome.jobs, store, setting, places)
    page = out / f"{recipe.name}{setting.suffix}" / PAGE
    if outcome.done:
        write_files(recipe, found, outcome, out, page.parent)
        for table in recipe.shown(found):
            grid = Grid(*table.header, title=table.caption, title_justify="left")
            for row in table.rows:
                grid.add_row(*row)
            console.print(grid)
        claim, verdict = f" {recipe.claim}\n", f" {recipe.verdict(found)}"
        console.print(Text.assemble(("Claim:", "bold"), claim, ("Here:", "bold"), verdict))
        console.print(f"page: {page}", soft_wrap=True)
    complain(recipe, outcome)
    return page


def images_of(recipe: Recipe, setting: Setting) -> str:
    """The set in words. It is opened before anything starts: a recipe of one set must not be filled with results on
    another."""
    source = open_source(setting.train, split="pretrain")
    classes = len(source.classes)
    if not setting.quick and recipe.classes not in (None, classes):
        raise UserError(
            f"{recipe.name} is about a set of {recipe.classes} classes, and --data {setting.data} has {classes}: name "
            "another set, or another recipe"
        )
    return images_in_words(source)


def announce(recipe: Recipe, setting: Setting, out: Path, store: Store, console: Console) -> None:
    """The budget, before anything starts."""
    jobs = recipe.jobs(setting, store)
    done = done_of(jobs, recipe, store)
    left = [job for job in jobs if job not in done]
    console.print(Text.assemble((recipe.name, "bold"), f": {recipe.where}. {recipe.title}"))
    data, seeds = f" on {setting.data}" if setting.data else "", ", ".join(map(str, setting.seeds))
    several = "s" * (len(setting.seeds) > 1)
    budget = f"{len(jobs)} run{'s' * (len(jobs) > 1)}{data}, seed{several} {seeds}; {len(done)} done"
    if setting.as_planned:
        budget += f", about {duration(sum(job.seconds for job in left))} to go on two quiet cores"
    if setting.scale == "paper":
        budget += f"; the paper's set-up: {recipe.paper_setup}"
    if setting.quick:
        budget += "; a quick test: few steps of small batches, the numbers mean nothing"
    console.print(f"{budget}\nruns under {out / 'jobs'}, results in {store.path()}", soft_wrap=True)
    for rows in left_out(store.outdated(jobs)):
        console.print(f"not counted: {rows}", soft_wrap=True)


def complain(recipe: Recipe, outcome: Outcome) -> None:
    """Raises a `UserError` that names what is missing."""
    if outcome.whole:
        return
    words = [f"{recipe.name}: {len(outcome.done)} of {len(outcome.jobs)} runs are done"]
    alike: dict[str, list[str]] = {}
    for job, reason in outcome.failed.items():
        alike.setdefault(reason.partition(TRACEBACK)[0], []).append(job)
    for first, *others in alike.values():
        more = f" and {len(others)} more" if others else ""
        words.append(f"{first}{more} failed ({outcome.failed[first]})")
    if outcome.elsewhere:
        count = len(outcome.elsewhere)
        words.append(f"{count} {'is' if count == 1 else 'are'} being run by another process")
    words += [f"{job} waits for {job.waits_for}" for job in outcome.waiting]
    raise UserError(f"{'; '.join(words)}: the same command runs what is missing")
