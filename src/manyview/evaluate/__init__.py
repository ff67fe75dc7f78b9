"""Evaluation of frozen encoders: one file per protocol. A new file here becomes a command without registration."""

from typing import TYPE_CHECKING

from manyview.registry import Registry

if TYPE_CHECKING:
    from manyview.evaluate.protocol import Protocol

__all__ = ["described", "find"]

_PROTOCOLS: "Registry[Protocol]" = Registry(__name__, __path__[0], "manyview.protocols", "protocol.Protocol")
described, find = _PROTOCOLS.described, _PROTOCOLS.find
