"""All recipes by name; those of a paper are declared in one file."""

from manyview.errors import UserError
from manyview.reproduce import cacr, cmc, jcl
from manyview.reproduce.recipe import Recipe

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (*cacr.RECIPES, *cmc.RECIPES, *jcl.RECIPES)}


def find(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}: choose one of {', '.join(RECIPES)} (`manyview reproduce --list`)")
    return RECIPES[name]
