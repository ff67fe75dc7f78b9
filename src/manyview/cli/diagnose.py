"""`manyview diagnose`: problems of a run, with advice."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyview.arguments import Positional
from manyview.cli.shared import console, parsed

COLOURS = {"problem": "red", "warning": "yellow", "good": "green", "normal": "none", "unknown": "dim"}


@dataclass(frozen=True)
class Diagnose:
    """Find problems of a run and say what to do about them."""

    run: Annotated[Path, Positional]
    """Run directory. The run may still be training."""

    def __call__(self) -> None:
        from rich.table import Table
        from rich.text import Text

        from manyview.diagnose.rules import findings

        found = findings(self.run)
        grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        grid.add_column()
        grid.add_column(overflow="fold")  # a command with a long path can still be copied
        for finding in found:
            grid.add_row(Text(finding.level, COLOURS[finding.level]), Text(f"{finding.about}: {finding.text}"))
            if finding.advice:
                grid.add_row("", Text(f"→ {finding.advice}"))
        console.print(grid if found else "There is nothing to judge yet.")


def run(words: list[str]) -> None:
    parsed(Diagnose, words)()
