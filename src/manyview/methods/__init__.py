"""One small file per method. A file put here is found by itself: its `Method` becomes a command."""

import importlib
import pkgutil

from manyview.errors import UserError
from manyview.methods.base import Chance, Method, Paper, ViewBatch

__all__ = ["METHODS", "Chance", "Method", "Paper", "ViewBatch", "find"]


def _discover() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Method) and "name" in vars(value):
                found[value.name] = value
    return dict(sorted(found.items()))


METHODS = _discover()


def find(name: str) -> type[Method]:
    if name not in METHODS:
        raise UserError(f"no method {name!r}: choose one of {', '.join(METHODS)}")
    return METHODS[name]
