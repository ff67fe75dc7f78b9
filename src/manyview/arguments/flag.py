"""The flags that a dataclass stands for: one for each field, those of dataclasses within it included."""

import dataclasses
import math
import types
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

NEEDED: Any = dataclasses.MISSING  # stands where a default would, in a field that the user must give


@dataclass(frozen=True)
class Called:
    """How a field is called on the command line, beside the flag of its name."""

    aliases: tuple[str, ...] = ()
    positional: bool = False  # a word without a flag


Positional = Called(positional=True)


@dataclass(frozen=True, eq=False)
class Flag:
    path: tuple[str, ...]  # of its field, from the outermost dataclass
    owner: type[Any]  # the dataclass of the field
    kind: Any
    marks: tuple[Any, ...]
    default: Any

    @property
    def setting(self) -> str:
        return self.path[-1]

    @cached_property
    def called(self) -> Called:
        return next((mark for mark in self.marks if isinstance(mark, Called)), Called())

    @property
    def name(self) -> str:
        return self.setting.upper() if self.called.positional else f"--{self.setting.replace('_', '-')}"

    @property
    def choices(self) -> list[str]:
        """The words that it takes, where they are listed."""
        return [str(word) for part in parts(self.kind) if get_origin(part) is Literal for word in get_args(part)]

    @property
    def words(self) -> float:
        """How many words are its value at most."""
        lengths = [len(element_kinds(part)) for part in parts(self.kind) if get_origin(part) is tuple]
        return 1 if not lengths else lengths[0] or math.inf


def flags_of(kind: Any, default: Any = NEEDED, path: tuple[str, ...] = ()) -> Iterator[Flag]:
    """In the order of the fields; `default` is an instance that has the defaults."""
    origin = get_origin(kind) or kind
    for field, (own, marks) in zip(dataclasses.fields(origin), kinds_of(kind), strict=True):
        value = default_of(field) if default is NEEDED else getattr(default, field.name)
        if is_dataclass(get_origin(own) or own):
            yield from flags_of(own, value, (*path, field.name))
        else:
            yield Flag((*path, field.name), origin, own, marks, value)


def kinds_of(kind: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Of each field the kind and what is annotated; a generic dataclass says in brackets what its variables are."""
    origin = get_origin(kind) or kind
    filled = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=False))
    hints = get_type_hints(origin, include_extras=True)
    for field in dataclasses.fields(origin):
        hint = hints[field.name]
        hint = filled[hint] if isinstance(hint, TypeVar) else hint
        yield (get_args(hint)[0], hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


def default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def parts(kind: Any) -> list[Any]:
    """The kinds of which a value has one: None first, as any word is a text, too."""
    if get_origin(kind) in (Union, types.UnionType):
        return sorted(get_args(kind), key=lambda part: part is not types.NoneType)
    return [kind]


def element_kinds(kind: Any) -> tuple[Any, ...]:
    """Of a tuple; none where it may have any length."""
    kinds = get_args(kind)
    return () if Ellipsis in kinds else kinds


SPOKEN = {int: "a whole number", float: "a number", str: "a text", Path: "a path"}


def spoken(kind: Any) -> str:
    """The kind of a value, as an error asks for it."""
    words: list[str] = []
    for part in parts(kind):
        if get_origin(part) is Literal:
            words += map(str, get_args(part))
        elif get_origin(part) is tuple:
            count = f"{len(own)} values" if (own := element_kinds(part)) else "values with spaces between"
            words.append(f"{count}, each {spoken(get_args(part)[0])}")
        elif part is not types.NoneType:
            words.append(SPOKEN[part])
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
