"""What a recipe leaves behind: the figure, its numbers, and one page with everything."""

import io
import textwrap
from pathlib import Path

from matplotlib.figure import Figure

from manyview.atomic import replacing
from manyview.reproduce.page import render
from manyview.reproduce.recipe import Found, Recipe
from manyview.reproduce.runner import Outcome
from manyview.reproduce.store import to_csv
from manyview.run.files import PAGE

__all__ = ["png", "titled", "write_files"]

PER_INCH = 15  # letters of the title


def write_files(recipe: Recipe, found: Found, outcome: Outcome, out: Path, directory: Path) -> None:
    """figure.png, figure.csv (one file for each table of results) and report.html."""
    picture = png(titled(recipe, found))
    files = {"figure.png": picture}
    for table, rows in found.rows.items():
        name = f"figure-{table}.csv" if table else "figure.csv"
        files[name] = to_csv(recipe.columns(table), rows).encode()
    files[PAGE] = render(recipe, found, outcome, picture, out=out, directory=directory).encode()
    for name, content in files.items():
        with replacing(directory / name) as file:
            file.write(content)


def titled(recipe: Recipe, found: Found) -> Figure:
    """The figure with what it is, as it may be looked at without the page."""
    figure, setting = recipe.draw(found), found.setting
    quick = ", a try-out" if setting.quick else ""
    images = f" on {setting.set_name}" if recipe.takes_images else ""
    words = f"{recipe.where}: {setting.scale}{images}{quick}, {recipe.shown_seeds(found)}"
    figure.suptitle(textwrap.fill(words, int(PER_INCH * figure.get_figwidth())), fontsize=9, color="#555")
    return figure


def png(figure: Figure) -> bytes:
    """The same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()
