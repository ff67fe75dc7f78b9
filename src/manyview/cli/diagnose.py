"""`manyview diagnose`: problems of a run, with advice."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyview.arguments import Positional
from manyview.cli.shared import console, in_lines, parsed


@dataclass(frozen=True)
class Diagnose:
    """Find problems of a run and say what to do about them."""

    run: Annotated[Path, Positional]
    """Run directory. The run may still be training."""

    def __call__(self) -> None:
        from manyview.diagnose.rules import findings

        found = findings(self.run)
        console.print(in_lines(found) if found else "There is nothing to judge yet.")


def run(words: list[str]) -> None:
    parsed(Diagnose, words)()
