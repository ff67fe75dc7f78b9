"""What several commands use."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

console = Console()


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
