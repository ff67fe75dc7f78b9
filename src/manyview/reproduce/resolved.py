"""The settings that decide a run's numbers, as flags, preset and defaults resolve them, compared field by field."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any

import torch

from manyview.config import AnyConfig, RunConfig
from manyview.data.source import Arrays, Source
from manyview.errors import UserError
from manyview.fields import IMAGE
from manyview.methods import find
from manyview.run.flags import parse_run

Resolved = dict[str, tuple[Any, bool]]
"""By the name of a setting: its value as JSON holds it, and whether that is the default of its field."""

# Where a run is kept, what is measured on the way and how fast it reads do not change its numbers. Its seed is a
# column.
NOT_DECIDING = {field.name for field in fields(RunConfig)} | {"data", "workers"}


class Images(Arrays):
    """As many samples and classes, and as large images, as a set has: all that a preset asks of it."""

    def __init__(self, words: str, at_most: int | None = None) -> None:
        """`words` as `images_in_words` writes them; a run on a subset has `at_most` so many of the samples."""
        try:
            samples, classes, side = map(int, words.split("/"))
        except ValueError as error:
            raise UserError(
                f"results on images {words!r}, which are not SAMPLES/CLASSES/SIDE: they are of another version, move "
                "the file away"
            ) from error
        samples = samples if at_most is None else min(samples, at_most)
        self.arrays = {IMAGE: torch.zeros((), dtype=torch.uint8).expand(samples, 3, side, side)}  # without memory
        self.name, self.size, self.classes = words, (side, side), tuple(map(str, range(classes)))


def images_in_words(source: Source) -> str:
    """By which rows of one set are told from those of another, wherever the sets lie: 50000/10/32."""
    return f"{len(source)}/{len(source.classes)}/{source.median_side}"


@cache
def resolve(words: tuple[str, ...], images: str) -> Resolved:
    """What `manyview pretrain WORDS` would run on these images."""
    method = find(words[0])
    flags = [*words[1:], "--data", images, "--out", "nowhere"]
    config = parse_run(method, flags, opening=lambda _, config: Images(images, config.data.subset)).config
    return of_config(method.name, config)


def of_config(method: str, config: AnyConfig) -> Resolved:
    """In one group, so that a field may move to another one."""
    found: Resolved = {"method": (method, False)}
    for group in (config.method, config.data, config.views, config.encoder, config.optim):
        found |= of_fields(group)
    return {name: value for name, value in found.items() if name not in NOT_DECIDING}


def of_fields(group: Any) -> Resolved:
    found: Resolved = {}
    for field in fields(group):
        found |= described(field.name, getattr(group, field.name), field)
    return found


def described(name: str, value: Any, field: Field[Any] | None = None, *, default: bool = False) -> Resolved:
    """A setting with all that it consists of: dataclasses are told by their class and by each of their fields."""
    default = default or (field is not None and value == _default(field))
    if is_dataclass(value):
        found: Resolved = {name: (type(value).__name__, default)}
        for each in fields(value):
            found |= described(f"{name}.{each.name}", getattr(value, each.name), each, default=default)
        return found
    if isinstance(value, Sequence) and any(map(is_dataclass, value)):
        found = {name: (len(value), default)}
        for number, part in enumerate(value):
            found |= described(f"{name}.{number}", part, default=default)
        return found
    return {name: (json.loads(json.dumps(value, default=str)), default)}


def differing(stored: Mapping[str, Any], today: Resolved) -> str:
    """What parts the settings that rows came from and those that would be run today, in words; empty where nothing
    does. A field that is new since then counts only where its value is not the default."""
    found = [f"{name} {stored[name]}, now {today[name][0]}" for name in stored if name in today
             and stored[name] != today[name][0]]  # fmt: skip
    found += [f"{name} {value}, not known then" for name, (value, default) in today.items()
              if name not in stored and not default]  # fmt: skip
    return "; ".join(found + [f"{name} {value}, not known now" for name, value in stored.items() if name not in today])


def _default(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default
