"""`manyview report`: the page of a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from manyview.arguments import Positional
from manyview.bounds import Positive
from manyview.cli.shared import console, parsed, use_threads


@dataclass(frozen=True)
class Report:
    """Write the report of a run (report.html) with its newest evaluations."""

    run: Annotated[Path, Positional]
    """Run directory. The run may still be training."""
    data: str | None = None
    """The data, if it has moved."""
    against: str | None = None
    """Another run, finished or not, an encoder file, timm:NAME, or a file of weights. Its nearest neighbours are shown
    beside those of the run."""
    threads: Annotated[int | None, Positive] = None
    """Threads that compute. Default: one per core."""

    def __call__(self) -> None:
        from manyview.run.build import build_augment
        from manyview.run.flags import open_training
        from manyview.run.pretrain import report
        from manyview.run.saved import saved_config

        use_threads(self.threads)
        method, config = saved_config(self.run)
        source = open_training(method, replace(config, data=replace(config.data, data=self.data or config.data.data)))
        page = report(self.run, source, build_augment(method, config), console, against=self.against)
        console.print(f"report: {page}", soft_wrap=True)


def run(words: list[str]) -> None:
    parsed(Report, words)()
