"""`manyview resume`: continue an interrupted run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from manyview.arguments import Positional
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import conclude, console, parsed, ranks, use_threads
from manyview.run.files import LoggerName


@dataclass(frozen=True)
class Resume:
    """Continue an interrupted run exactly from its last checkpoint."""

    run: Annotated[Path, Positional]
    """Run directory."""
    data: str | None = None
    """The data, if it has moved."""
    workers: Annotated[int | Literal["auto"] | None, NotNegative] = None
    """Processes that read and decode. Default: as the run was started."""
    device: str | None = None
    """cpu, cuda, …"""
    threads: Annotated[int | None, Positive] = None
    """Threads that compute. Default: as the run was started."""
    log_to: tuple[LoggerName, ...] | None = None
    """Loggers besides metrics.jsonl: tensorboard, wandb, mlflow. Default: as the run was started."""

    def __call__(self) -> None:
        from manyview.run.files import ENCODER, PAGE, finished
        from manyview.run.flags import open_training
        from manyview.run.loggers import check_loggers
        from manyview.run.pretrain import resume
        from manyview.run.saved import saved_config

        with ranks():
            method, config = saved_config(self.run)
            if finished(self.run):
                where = f"its encoder is {self.run / ENCODER}, its page {self.run / PAGE}"
                console.print(f"{self.run} is already finished: {where}", soft_wrap=True)
                return
            use_threads(self.threads or config.run.threads)
            moved = {name: value for name in ("data", "workers") if (value := getattr(self, name)) is not None}
            other = {name: value for name in ("device", "log_to") if (value := getattr(self, name)) is not None}
            config = replace(config, data=replace(config.data, **moved), run=replace(config.run, **other))
            check_loggers(config.run.log_to)
            source = open_training(method, config)
            conclude(resume(self.run, method, config, source, console))


def run(words: list[str]) -> None:
    parsed(Resume, words)()
