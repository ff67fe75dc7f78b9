"""A configuration in the making: what the user asked for stays, all else is chosen, with a reason."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from manyview.config import AnyConfig

AS_ASKED = "as asked"


class Choices:
    """A flag that the user gave stays; every other choice has its reason."""

    def __init__(self, base: AnyConfig, asked: AnyConfig, given: Collection[str]) -> None:
        self.config, self.asked, self.given = base, asked, given
        self.reasons: dict[str, str] = {}  # by the name of the setting, in the order in which they are told

    def choose(self, group: str, name: str, value: Any, reason: str) -> Any:
        """The value that the setting will have."""
        if name in self.given:
            value, reason = getattr(getattr(self.asked, group), name), AS_ASKED
        self.config = replace(self.config, **{group: replace(getattr(self.config, group), **{name: value})})
        self.reasons[name] = reason
        return value
