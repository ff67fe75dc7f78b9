"""A dataclass as flags: what words mean, what is wrong with them, and how help explains them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest

from manyview.arguments import NEEDED, Called, Positional, Read, explain, needs, read
from manyview.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """Numbers of a group.

    More about them."""

    rate: float = 0.1 + 0.2
    """Rate of
    something."""
    milestones: tuple[float, ...] = (0.5, 0.75)
    kind: Literal["cosine", "step"] = "cosine"
    """Kind."""
    workers: int | Literal["auto"] = "auto"
    limit: int | None = None
    """Limit. Default: none."""
    scale: tuple[float, float] | None = None
    logs: tuple[Literal["file", "board"], ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "step" and not self.milestones:
            raise UserError("--kind step needs --milestones")


@dataclass(frozen=True)
class Other(Group):
    """Numbers of a group."""

    dim_size: Annotated[int, Called(("--dim",))] = 128
    """Size."""


@dataclass(frozen=True)
class Command(Generic[T]):
    run: Annotated[Path, Positional]
    """The run."""
    data: str
    """The data."""
    group: T
    random: bool = True
    """Also this."""
    dry: bool = False
    note: str | None = None
    late: Group = field(default_factory=Group)


@dataclass(frozen=True)
class Simple:
    data: str
    own: Other = field(default_factory=Other)
    fast: bool = False


def said(*words: str, kind: Any = Simple, default: Any = NEEDED, shares: bool = False) -> Read[Any]:
    return read(kind, words, default, prog="manyview try", shares=shares)


def test_words_become_values_of_the_kinds_of_the_fields() -> None:
    words = "x/y --data=a=b --rate 1e-3 --milestones 0.1 0.2 --workers 2 --no-random --dry --limit 7 --note None"
    words += " --scale 0 1 --logs file board"
    found = read(Command[Group], words.split(), prog="try")
    group = Group(0.001, (0.1, 0.2), workers=2, limit=7, scale=(0.0, 1.0), logs=("file", "board"))
    # Fields of one name in two groups are one flag; the groups of a run have none.
    assert (found.problems, found.missing, found.left) == ((), (), ())
    assert found.value.run == Path("x/y")
    assert found.value.data == "a=b"
    assert found.value.late == group
    assert (found.value.random, found.value.dry, found.value.note) == (False, True, None)


def test_underscores_aliases_and_the_last_of_two_count() -> None:
    found = said("--data", "-1", "--dim_size", "3", "--dim", "4", "--fast", "--no-fast", "--workers", "auto")
    assert found.value == Simple("-1", Other(dim_size=4))
    assert found.given == {"data", "dim_size", "fast", "workers"}


def test_a_list_may_be_empty() -> None:
    found = said("--data", "x", "--milestones", "--fast")
    assert (found.value.own.milestones, found.problems) == ((), ())


def test_defaults_are_those_of_an_instance() -> None:
    default = Simple(NEEDED, Other(kind="step", dim_size=5), fast=True)
    found = said("--rate", "2", default=default)
    assert found.value.own == Other(rate=2.0, kind="step", dim_size=5)
    assert found.value.fast
    assert found.missing == ("--data",)


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        ("--rat 3", ["--rat is no flag of `manyview try`: did you mean --rate?"]),
        ("--milestone 3 4", ["--milestone is no flag of `manyview try`: did you mean --milestones?"]),
        ("--no-fats", ["--no-fats is no flag of `manyview try`: did you mean --no-fast?"]),
        ("--zzz=3", ["--zzz is no flag of `manyview try`: `manyview try --help` lists them"]),
        (
            "loose",
            ["'loose' belongs to no flag: leave it out, or write the flag before it (`manyview"],
        ),
        ("--dim a", ["--dim-size a must be a whole number, such as 128"]),
        ("--dim 1.5", ["--dim-size 1.5 must be a whole number, such as 128"]),
        ("--rate a", ["--rate a must be a number, such as 0.3"]),
        ("--rate", ["--rate has no value: it must be a number"]),
        ("--rate --fast", ["--rate has no value: it must be a number"]),
        ("--milestones 1 b", ["--milestones 1 b must be values with spaces between, each a number"]),
        ("--kind cosin", ["--kind cosin must be cosine or step (did you mean cosine?)"]),
        ("--workers many", ["--workers many must be a whole number or auto"]),
        ("--scale 1", ["--scale 1 must be 2 values, each a number"]),
        ("--scale 1 2 3", ["'3' belongs to no flag"]),
        ("--logs file bord", ["--logs file bord must be values with spaces between, each file or board"]),
        ("--limit x", ["--limit x must be a whole number"]),
        ("--fast=yes", ["--fast=yes has a value, but --fast stands alone: leave the value out"]),
        ("--dim a --rat 3 --kind x", ["--dim-size a must", "--rat is no flag", "--kind x must be cosine or step"]),
    ],
)
def test_each_mistake_is_a_line(words: str, problems: list[str]) -> None:
    found = said("--data", "x", *words.split())
    assert len(found.problems) == len(problems)
    assert all(line.startswith(start) for line, start in zip(found.problems, problems, strict=True))
    assert found.value.data == "x"  # which can be checked further
    assert found.value.own.dim_size == 128


def test_settings_that_exclude_each_other_are_a_mistake_like_others() -> None:
    default = Simple("x", Other(milestones=()))
    found = said("--kind", "step", "--rate", "b", default=default)
    assert found.problems == ("--rate b must be a number, such as 0.3", "--kind step needs --milestones")


def test_what_is_needed_is_told_in_one_line() -> None:
    found = read(Command[Group], [], prog="manyview try")
    assert found.missing == ("RUN", "--data")
    assert needs(found.missing, "manyview try", "manyview try a --data b") == [
        "try needs RUN and --data, as in `manyview try a --data b`; `manyview try --help` explains all flags"
    ]
    assert needs((), "manyview try", "") == []
    # The word after an unknown flag may be its value or the run: only the flag is called wrong.
    assert read(Command[Group], ["--wrong", "a", "--data", "b"], prog="try").missing == ()


def test_a_flag_without_a_usable_value_is_neither_given_nor_missing() -> None:
    found = said("--data", "--rate", "fast", "--fast")
    assert found.problems == ("--data has no value: it must be a text", "--rate fast must be a number, such as 0.3")
    assert found.missing == ()
    assert found.given == {"fast"}


def test_words_of_another_command_are_left_as_they_are() -> None:
    found = said("--data", "x", "--new_flag", "a", "b", "--fast", "--other=3", shares=True)
    assert found.left == ("--new_flag", "a", "b", "--other=3")
    assert found.problems == ()
    assert found.value.fast


@pytest.mark.parametrize("width", [60, 80, 200])
def test_help_is_as_wide_as_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = explain(Command[Other], prog="manyview try", about="Tries.  It is\n  good.", first=("kind", "data"))
    assert text.startswith("usage: manyview try RUN --data TEXT [flags]\n\nTries. It is good.\n\n  RUN")
    assert max(map(len, text.splitlines())) <= min(width, 110)
    used = text.split("Used most:")[1].split("\n\n")[0]
    assert used.index("--kind cosine|step") < used.index("--data TEXT")
    flat = " ".join(text.split())
    assert "Numbers of a group:" in flat
    assert "More about them" not in flat
    assert "--rate NUMBER Rate of something. (default: 0.3)" in flat
    assert "--milestones NUMBER … (default: 0.5 0.75)" in flat
    assert "--workers N|auto (default: auto)" in flat
    assert "--limit N Limit. Default: none. --scale NUMBER NUMBER --logs file|board … (default: none)" in flat
    assert "--dim-size N Size. (default: 128)" in flat
    assert "--[no-]random Also this. (default: yes)" in flat
    assert "--data TEXT The data. (needed)" in flat
