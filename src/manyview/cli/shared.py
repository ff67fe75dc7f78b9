"""What several commands use."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table

from manyview import bounds
from manyview.arguments import asked_for_help, explain, needs, read
from manyview.cli.examples import EXAMPLES
from manyview.errors import UserError, complaints, naming, refuse

if TYPE_CHECKING:
    from manyview.data import Source

T = TypeVar("T")

console = Console(markup=False, emoji=False)  # names of files may look like either


def parsed(kind: type[T], words: list[str], *, command: str = "", about: str = "") -> T:
    """The flags of a command, by default of that which is called as the dataclass `kind` is."""
    command = command or kind.__name__.lower()
    prog = f"manyview {command}"
    if asked_for_help(words):
        print(explain(kind, prog=prog, about=about or kind.__doc__ or ""))
        raise SystemExit(0)
    found = read(kind, words, prog=prog)
    wrong = [*found.problems, *bounds.problems(found.value).values(), *needs(found.missing, prog, example(command))]
    refuse([*wrong, *nowhere(found.value)])
    value: T = found.value
    return value


def nowhere(command: Any) -> list[str]:
    """What is wrong with the places of data, where nothing is. What is there is opened later, which may take long."""
    named = {name: getattr(command, name, None) for name in ("data", "test_data")}
    given = {f"--{name.replace('_', '-')}": text for name, text in named.items() if isinstance(text, str)}
    if not given:
        return []
    from manyview.data import absent, open_source

    def look(flag: str, text: str) -> None:
        with naming(flag):
            if absent(text):
                open_source(text)

    return complaints(*(partial(look, *pair) for pair in given.items()))


def first_word(command: str, kind: str, words: list[str]) -> str:
    """The method or protocol."""
    if not words or words[0].startswith("--"):
        raise UserError(
            f"{command} needs a {kind}, as in `{EXAMPLES[command]}`; `manyview {command} --help` lists the {kind}s"
        )
    return words[0]


def example(command: str) -> str:
    """Such a command, with the protocol that is named after it."""
    name, _, protocol = command.partition(" ")
    return EXAMPLES[name].replace("knn", protocol) if protocol else EXAMPLES[name]


def listed(what: str, choices: Mapping[str, str], usage: str) -> None:
    """Prints a table of names and descriptions."""
    grid = Table(what, "", title=usage, title_justify="left")
    for name, description in choices.items():
        grid.add_row(name, description)
    console.print(grid)


def names(text: str | None) -> list[str]:
    """Names between commas, each once, in the order given."""
    return [] if text is None else list(dict.fromkeys(name.strip() for name in text.split(",")))


def use_threads(count: int | None) -> None:
    if count is not None:
        import torch

        torch.set_num_threads(count)


@contextmanager
def ranks() -> Iterator[None]:
    """Connects the processes of a `torchrun`. Only rank 0 prints."""
    from manyview import distributed

    with distributed.connected():
        console.quiet = distributed.rank() > 0
        yield


def opened(data: str, split: str, **how: Any) -> "Source":
    from manyview.data import open_source
    from manyview.data.source import NoTestSplit

    try:
        with naming("--data"):
            return open_source(data, split=split, **how)
    except NoTestSplit as error:
        raise UserError(f"--split {split}: '{data}' has no test split: use --split train") from error


def missing_from(source: "Source") -> str:
    return f"; missing: {source.missing_in_words}" if source.missing else ""
