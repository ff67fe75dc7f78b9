"""`manyview resume`: continue a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from manyview import bounds
from manyview.bounds import NotNegative
from manyview.cli.shared import console, ranks

__all__ = ["run"]


@dataclass(frozen=True)
class Args:
    """Continue an interrupted run exactly from its last checkpoint."""

    run: tyro.conf.Positional[Path]
    """Run directory."""
    data: str | None = None
    """The data, if it has moved."""
    workers: Annotated[int | None, NotNegative] = None
    """Processes that read and decode."""
    device: str | None = None
    """cpu, cuda, …"""


def run(words: list[str]) -> None:
    args = tyro.cli(Args, prog="manyview resume", args=words)
    bounds.check(args)
    from manyview.run.flags import open_training
    from manyview.run.pretrain import resume
    from manyview.run.saved import saved_config

    with ranks():
        method, config = saved_config(args.run)
        data, workers, device = args.data, args.workers, args.device
        config = replace(
            config,
            data=replace(
                config.data,
                data=config.data.data if data is None else data,
                workers=config.data.workers if workers is None else workers,
            ),
            run=replace(config.run, device=config.run.device if device is None else device),
        )
        source = open_training(method, config)
        console.print(f"report: {resume(args.run, method, config, source, console) / 'report.html'}", soft_wrap=True)
