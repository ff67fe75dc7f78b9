"""From the words of a command line to a dataclass. Nothing ends at the first mistake: all of them are told at once."""

import math
import types
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from manyview.arguments.flag import NEEDED, SPOKEN, Flag, default_of, element_kinds, flags_of, kinds_of, parts, spoken
from manyview.errors import UserError, meant

T = TypeVar("T")
Values = dict[tuple[str, ...], Any]  # by the path of the field


@dataclass(frozen=True)
class Read(Generic[T]):
    """What words say. Where there are problems, the value is whole all the same: the rest of it can be checked, too."""

    value: T
    given: frozenset[str]  # the settings whose flags are given, with a value that can be used
    problems: tuple[str, ...]
    missing: tuple[str, ...]  # flags that are needed and not there
    left: tuple[str, ...]  # words that belong to none of the flags


def read(
    kind: Any,
    words: Sequence[str],
    default: Any = NEEDED,
    *,
    prog: str,
    shares: bool = False,
    others: Sequence[str] = (),
) -> Read[Any]:
    """`words` as the dataclass `kind`. Of a flag that is given twice the last counts. A command that `shares` its words
    with another leaves it the unknown ones; the `others` are flags that were taken out before."""
    flags = list(flags_of(kind, default))
    named = {name: flag for flag in flags if not flag.called.positional for name in (flag.name, *flag.called.aliases)}
    switches = {f"--no-{name[2:]}": flag for name, flag in named.items() if flag.kind is bool}
    places, rest = deque(flag for flag in flags if flag.called.positional), deque(words)
    values, problems, left, excused = Values(), list[str](), list[str](), set[Flag]()
    while rest:
        word = rest.popleft()
        name, equals, text = word.partition("=")
        name = name.replace("_", "-")
        flag = named.get(name) or switches.get(name)
        if not word.startswith("--") and places:
            flag, found = places.popleft(), [word]
        elif flag is None:
            left += [word, *(_values(rest, math.inf) if word.startswith("--") else ())]
            if not shares:
                problems.append(_unknown(word, name, [*named, *switches, *others], prog))
                excused.update(places)  # their words may have been taken for values of this flag
            continue
        elif flag.kind is bool:
            values[flag.path] = name in named
            if equals:
                problems.append(f"{word} has a value, but {name} stands alone: leave the value out")
            continue
        else:
            found = [text] if equals else _values(rest, flag.words)
        try:
            values[flag.path] = _converted(flag.kind, found)
        except ValueError:
            values.pop(flag.path, None)
            excused.add(flag)
            problems.append(_wrong(flag, " ".join(found)))
    missing = [flag.name for flag in flags if flag.default is NEEDED and not (flag.path in values or flag in excused)]
    value = _assembled(kind, default, values, problems)
    return Read(value, frozenset(path[-1] for path in values), tuple(problems), tuple(missing), tuple(left))


def needs(missing: Sequence[str], prog: str, example: str) -> list[str]:
    """One line about all flags and words that are not there."""
    if not missing:
        return []
    names, command = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1]))), prog.removeprefix("manyview ")
    return [f"{command} needs {names}, as in `{example}`; `{prog} --help` explains all flags"]


def _values(rest: deque[str], most: float) -> list[str]:
    """The words up to the next flag, taken out of `rest`."""
    found: list[str] = []
    while rest and len(found) < most and not rest[0].startswith("--"):
        found.append(rest.popleft())
    return found


def _converted(kind: Any, words: Sequence[str]) -> Any:
    """Raises a ValueError where they are no such value."""
    for part in parts(kind):
        with suppress(ValueError, IndexError):
            if part is types.NoneType and words[0] == "None":
                return None
            if get_origin(part) is tuple:
                each = element_kinds(part) or get_args(part)[:1] * len(words)
                return tuple(_converted(own, [word]) for own, word in zip(each, words, strict=True))
            if get_origin(part) is Literal and words[0] in (known := {str(each): each for each in get_args(part)}):
                return known[words[0]]
            if part in SPOKEN:
                return part(words[0])
    raise ValueError


def _wrong(flag: Flag, said: str) -> str:
    wanted = spoken(flag.kind)
    if not said:
        return f"{flag.name} has no value: it must be {wanted}"
    such = f", such as {flag.default:g}" if type(flag.default) in (int, float) and not flag.choices else ""
    return f"{flag.name} {said} must be {wanted}{such}{meant(said, flag.choices)}"


def _unknown(word: str, name: str, known: Sequence[str], prog: str) -> str:
    if not word.startswith("--"):
        return f"'{word}' belongs to no flag: leave it out, or write the flag before it (`{prog} --help` lists them)"
    plain = [each.removeprefix("--") for each in known]
    close = [each for each in plain if each.startswith(name[2:])] or get_close_matches(name[2:], plain, 1)
    way_out = f"did you mean --{close[0]}?" if close else f"`{prog} --help` lists them"
    return f"{name} is no flag of `{prog}`: {way_out}"


def _assembled(kind: Any, default: Any, values: Values, problems: list[str], path: tuple[str, ...] = ()) -> Any:
    origin, found = get_origin(kind) or kind, dict[str, Any]()
    for field, (own, _) in zip(fields(origin), kinds_of(kind), strict=True):
        here = (*path, field.name)
        before = default_of(field) if default is NEEDED else getattr(default, field.name)
        if is_dataclass(get_origin(own) or own):
            found[field.name] = _assembled(own, before, values, problems, here)
        else:
            found[field.name] = values.get(here, before)
    try:
        return origin(**found)
    except UserError as error:  # settings that exclude each other
        problems += str(error).splitlines()
        return origin() if default is NEEDED else default
