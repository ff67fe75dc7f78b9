"""What several commands use."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table

from manyview import bounds
from manyview.errors import UserError, naming

if TYPE_CHECKING:
    from manyview.data import Source

T = TypeVar("T")

console = Console()


def parsed(kind: type[T], words: list[str]) -> T:
    """The flags of the command that is called as the dataclass `kind` is."""
    import tyro

    command = tyro.cli(kind, prog=f"manyview {kind.__name__.lower()}", args=words)
    bounds.check(command)
    return command


def listed(what: str, choices: Mapping[str, str], usage: str) -> None:
    """Prints a table of names and descriptions."""
    grid = Table(what, "", title=usage, title_justify="left")
    for name, description in choices.items():
        grid.add_row(name, description)
    console.print(grid)


def names(text: str | None) -> list[str]:
    """Names between commas, each once, in the order given."""
    return [] if text is None else list(dict.fromkeys(name.strip() for name in text.split(",")))


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
