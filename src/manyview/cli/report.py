"""`manyview report`: write the report of a run."""

from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from manyview.cli.shared import console

__all__ = ["run"]


@dataclass(frozen=True)
class Args:
    """Write the report of a run again, with its newest evaluations."""

    run: tyro.conf.Positional[Path]
    """Run directory."""
    data: str | None = None
    """The data, if it has moved."""
    against: Path | None = None
    """Another run directory or encoder file. Its nearest neighbours are shown beside those of the run."""


def run(words: list[str]) -> None:
    args = tyro.cli(Args, prog="manyview report", args=words)
    from manyview.run.build import build_augment
    from manyview.run.flags import open_training
    from manyview.run.pretrain import report
    from manyview.run.saved import saved_config

    method, config = saved_config(args.run)
    source = open_training(method, replace(config, data=replace(config.data, data=args.data or config.data.data)))
    page = report(args.run, source, build_augment(method, config), console, against=args.against)
    console.print(f"report: {page}", soft_wrap=True)
