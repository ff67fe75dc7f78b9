"""One small file per method. A file put here is found by itself: its `Method` becomes a command."""

from typing import TYPE_CHECKING

from manyview.registry import Registry

if TYPE_CHECKING:
    from manyview.methods.base import Method

__all__ = ["described", "find"]

_METHODS: "Registry[Method]" = Registry(__name__, __path__[0], "manyview.methods", "base.Method")
described, find = _METHODS.described, _METHODS.find
