"""How good a frozen encoder is: one file per protocol. A file put here is found by itself and becomes a command."""

from typing import TYPE_CHECKING

from manyview.errors import UserError
from manyview.registry import Registry

if TYPE_CHECKING:
    from manyview.evaluate.protocol import Protocol

__all__ = ["described", "find"]

_PROTOCOLS = Registry(__name__, __path__[0], "manyview.protocols")


def described() -> dict[str, str]:
    """Every protocol by name with a line that describes it. No protocol is imported for it."""
    return _PROTOCOLS.described()


def find(name: str) -> "type[Protocol]":
    kind = _PROTOCOLS.find(name)
    from manyview.evaluate.protocol import Protocol

    if not (isinstance(kind, type) and issubclass(kind, Protocol) and getattr(kind, "name", None) == name):
        raise UserError(f"{kind!r} is registered as the protocol {name!r}, but is no `Protocol` of that name")
    return kind
