"""The range of a setting, beside its field: `lr: Annotated[float, Positive] = 0.03`."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, get_type_hints

from manyview.errors import refuse

MOST_CHANNELS = 1024  # of an image


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
Channels = Bound(lambda value: 1 <= value <= MOST_CHANNELS, f"must lie between 1 and {MOST_CHANNELS}")
Finite = Bound(lambda value: -math.inf < value < math.inf, "must be a finite number")


def check(config: Any) -> None:
    """Raises a UserError with a line for each number that is out of its bounds."""
    refuse(problems(config).values())


def problems(config: Any) -> dict[str, str]:
    """What is wrong with the numbers of a dataclass, or of those in its fields, by the name of the field."""
    found: dict[str, str] = {}
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found |= problems(value)
            continue
        own = [each for each in getattr(hints[field.name], "__metadata__", ()) if isinstance(each, Bound)]
        for number in value if isinstance(value, tuple) else (value,):
            broken = [bound for bound in (Finite, *own) if isinstance(number, int | float) and not bound.holds(number)]
            if broken and field.name not in found:
                shown = str(number).removesuffix(".0")
                found[field.name] = f"--{field.name.replace('_', '-')} {shown} {broken[0].demand}"
    return found


def mended(config: Any, default: Any, names: Collection[str]) -> Any:
    """The fields `names` as in `default`: with them out of the way, the others can be checked."""
    values = {}
    for name in (field.name for field in fields(config)):
        value, usual = getattr(config, name), getattr(default, name)
        values[name] = mended(value, usual, names) if is_dataclass(value) else usual if name in names else value
    return replace(config, **values)
