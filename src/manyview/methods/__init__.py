"""One small file per method. A new file here becomes a command without registration."""

from typing import TYPE_CHECKING

from manyview.registry import Registry

if TYPE_CHECKING:
    from manyview.methods.base import Method

__all__ = ["described", "find"]

_METHODS: "Registry[Method]" = Registry(__name__, __path__[0], "manyview.methods", "base.Method")
described, find = _METHODS.described, _METHODS.find
