"""The range of a setting, beside its field: `lr: Annotated[float, Positive] = 0.03`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from manyview.errors import refuse


@dataclass(frozen=True)
class Bound:
    """`demand` goes on after the flag and its value. None is always allowed; of a tuple each number is checked."""

    holds: Callable[[float], bool]
    demand: str


Positive = Bound(lambda value: value > 0, "must be greater than 0")
NotNegative = Bound(lambda value: value >= 0, "must not be negative")
AtLeastOne = Bound(lambda value: value >= 1, "must be at least 1")
Share = Bound(lambda value: 0 <= value <= 1, "must lie between 0 and 1")
PositiveShare = Bound(lambda value: 0 < value <= 1, "must lie above 0 and be at most 1")
ShareBelowOne = Bound(lambda value: 0 <= value < 1, "must be at least 0 and less than 1")
Several = Bound(lambda value: value >= 2, "leaves a query without a positive: use 2 or more")
Seed = Bound(lambda value: 0 <= value < 2**63, "must lie between 0 and 2**63 - 1")
Finite = Bound(lambda value: -math.inf < value < math.inf, "must be a finite number")


def check(config: Any) -> None:
    """Raises a UserError with a line for each number that is out of its bounds."""
    refuse(problems(config))


def problems(config: Any) -> list[str]:
    """Of each number of a dataclass, or of those in its fields, that is out of its bounds."""
    found: list[str] = []
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found += problems(value)
            continue
        own = [each for each in getattr(hints[field.name], "__metadata__", ()) if isinstance(each, Bound)]
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float):
                bound = next((bound for bound in (Finite, *own) if not bound.holds(number)), None)
                if bound is not None:
                    shown = str(number).removesuffix(".0")
                    found.append(f"--{field.name.replace('_', '-')} {shown} {bound.demand}")
    return found
