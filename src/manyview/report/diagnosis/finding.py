"""One thing that is well or not."""

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["LEVELS", "Finding", "Level"]

Level = Literal["bad", "look", "good", "unknown"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class Finding:
    """`look` may be meant so or may not; `unknown` was not measured."""

    level: Level
    about: str
    text: str
    advice: str = ""  # what to do, with the flag; nothing where all is well
