"""One small file per method. A file put here is found by itself: its `Method` becomes a command."""

from typing import TYPE_CHECKING

from manyview.errors import UserError
from manyview.registry import Registry

if TYPE_CHECKING:
    from manyview.methods.base import Method

__all__ = ["described", "find"]

_METHODS = Registry(__name__, __path__[0], "manyview.methods")


def described() -> dict[str, str]:
    """Every method by name with a line that describes it. No method is imported for it."""
    return _METHODS.described()


def find(name: str) -> "type[Method]":
    kind = _METHODS.find(name)
    from manyview.methods.base import Method

    if not (isinstance(kind, type) and issubclass(kind, Method) and getattr(kind, "name", None) == name):
        raise UserError(f"{kind!r} is registered as the method {name!r}, but is no `Method` of that name")
    return kind
