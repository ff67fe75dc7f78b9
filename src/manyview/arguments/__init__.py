"""A dataclass as the flags of a command: what they are, what words give them, and how help explains them."""

from manyview.arguments.flag import NEEDED, Called, Flag, Positional, flags_of
from manyview.arguments.help import asked_for_help, explain, written
from manyview.arguments.reading import Read, needs, read

__all__ = [
    "NEEDED",
    "Called",
    "Flag",
    "Positional",
    "Read",
    "asked_for_help",
    "explain",
    "flags_of",
    "needs",
    "read",
    "written",
]
