"""All recipes by name; those of a paper are declared in one file."""

import re

from manyview.errors import UserError
from manyview.reproduce import cacr, cmc, jcl
from manyview.reproduce.recipe import Recipe

__all__ = ["RECIPES", "find"]


def _natural(recipe: Recipe) -> list[tuple[int, str]]:
    """fig9 before fig10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", recipe.name)]


RECIPES = {recipe.name: recipe for recipe in sorted((*jcl.RECIPES, *cacr.RECIPES, *cmc.RECIPES), key=_natural)}


def find(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}: choose one of {', '.join(RECIPES)} (`manyview reproduce --list`)")
    return RECIPES[name]
