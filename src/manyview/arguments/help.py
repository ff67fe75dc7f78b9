"""What --help prints: a line of use, and the flags in groups, as wide as the terminal."""

import ast
import inspect
import shutil
import textwrap
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from manyview.arguments.flag import NEEDED, Flag, element_kinds, flags_of, parts

ASKING = {"-h", "--help"}
COLUMN, WIDEST = 26, 110  # characters: of the names, and of a line that is still easy to read
METAVARS = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}


def asked_for_help(words: Collection[str]) -> bool:
    return not ASKING.isdisjoint(words)


def explain(kind: Any, default: Any = NEEDED, *, prog: str, about: str, first: Sequence[str] = ()) -> str:
    """The help of a command whose flags are those of the dataclass `kind`. The settings named `first` are a group in
    front."""
    flags = list(flags_of(kind, default))
    width = min(shutil.get_terminal_size().columns, WIDEST)
    words = [flag for flag in flags if flag.called.positional]
    front = sorted((flag for flag in flags if flag.setting in first), key=lambda flag: first.index(flag.setting))
    others = [flag for flag in flags if flag not in words and flag not in front]
    needed = [_usage(flag) for flag in (*words, *front, *others) if flag.default is NEEDED]
    use = " ".join(["usage:", prog, *needed, "[flags]"])
    groups = [("", words), ("Used most", front)]
    for path in dict.fromkeys(flag.path[:-1] for flag in others):
        members = [flag for flag in others if flag.path[:-1] == path]
        # A group is called by the docstring of its dataclass.
        title = " ".join((members[0].owner.__doc__ or path[-1]).split("\n\n")[0].split()) if path else "Flags"
        groups.append((title.rstrip("."), members))
    paragraphs = (_filled(" ".join(part.split()), width) for part in about.split("\n\n"))
    text = [_filled(use, width, others=" " * 7), "", "\n\n".join(paragraphs)]
    for title, members in groups:
        if members:
            text += ["", *([_filled(f"{title}:", width)] if title else []), *_lines(members, width)]
    return "\n".join(text)


def _lines(flags: Sequence[Flag], width: int) -> list[str]:
    lines = []
    texts = {owner: explained(owner) for owner in {flag.owner for flag in flags}}
    for flag in flags:
        label = f"  {_usage(flag)}"
        text = " ".join(filter(None, (texts[flag.owner].get(flag.setting), _shown_default(flag))))
        if len(label) + 2 > COLUMN and text:
            lines.append(label)
            label = ""
        lines.append(_filled(text, width, label.ljust(COLUMN), " " * COLUMN) or label)
    return lines


def _filled(text: str, width: int, first: str = "", others: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def _usage(flag: Flag) -> str:
    """The flag and what follows it."""
    if flag.called.positional:
        return flag.name
    if flag.kind is bool:
        return f"--[no-]{flag.name[2:]}"
    return f"{flag.name} {_metavar(flag.kind)}"


def _metavar(kind: Any) -> str:
    words = []
    for part in parts(kind):
        if get_origin(part) is tuple:
            own = [_metavar(each) for each in element_kinds(part)]
            words.append(" ".join(own or [_metavar(get_args(part)[0]), "…"]))
        elif part in METAVARS:
            words.append(METAVARS[part])
        elif get_origin(part) is Literal:
            words += map(str, get_args(part))
    return "|".join(words)


def _shown_default(flag: Flag) -> str:
    """As people write it; None stands for what the text says."""
    value = flag.default
    if value is NEEDED:
        return "(needed)"
    if value is None:
        return ""
    return f"(default: {written(value)})"


def written(value: Any) -> str:
    """A value as people write it: 0.3 for 0.30000000000000004, yes for True."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(written, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def explained(kind: type[Any]) -> dict[str, str]:
    """The text below each field of a dataclass and of those that it extends."""
    found: dict[str, str] = {}
    for each in filter(is_dataclass, reversed(kind.__mro__)):
        with suppress(OSError):  # its source is not at hand
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(tree, ast.ClassDef)
            for node, below in pairwise(tree.body):
                if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
                    found[ast.unparse(node.target)] = " ".join(str(ast.literal_eval(below.value)).split())
    return found
