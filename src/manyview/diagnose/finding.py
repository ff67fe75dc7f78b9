"""What is found of a run, and how bad it is."""

from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["problem", "warning", "good", "normal", "unknown"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class Finding:
    """`normal` means that nothing is wrong here, which makes no good run; `unknown`, that it was not measured."""

    level: Level
    about: str
    text: str
    advice: str = ""  # what to do, with the flag or the command
