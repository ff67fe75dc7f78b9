"""One small file per table or figure. A file put here is found by itself."""

import importlib
import pkgutil
import re

from manyview.errors import UserError
from manyview.reproduce.recipe import Recipe

__all__ = ["RECIPES", "find"]


def _discover() -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Recipe) and "name" in vars(value):
                found[value.name] = value()
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> list[tuple[int, str]]:
    """fig9 before fig10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


RECIPES = _discover()


def find(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}: choose one of {', '.join(RECIPES)} (`manyview reproduce --list`)")
    return RECIPES[name]
