"""Where a run is logged besides metrics.jsonl: TensorBoard, Weights & Biases and MLflow, through their own clients."""

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from manyview.atomic import locked, replacing
from manyview.errors import UserError
from manyview.run.files import LOGGERS, TENSORBOARD, LoggerName

PROJECT = "manyview"
PATIENCE = 120.0  # seconds at the end of a run, for what was not sent yet
AT_ONCE, EVERY = 500, 5.0  # metrics, and seconds between two parcels
LONGEST = 6000  # characters of a parameter that MLflow takes
PARAMETERS = 100  # that it takes at once
Outcome = Literal["finished", "interrupted"]


class Logger(ABC):
    """Gets the metrics of every step, at the end the page, and whether the run came to its end."""

    @abstractmethod
    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    @abstractmethod
    def page(self, path: Path) -> None: ...

    @abstractmethod
    def close(self, outcome: Outcome) -> None: ...


def check_loggers(names: Iterable[LoggerName]) -> None:
    """Whether their packages are installed. None of them is imported."""
    for name in names:
        if find_spec(name) is None:
            raise UserError(f"--log-to {name} needs its package: pip install 'manyview[{name}]'")


def open_loggers(
    names: Iterable[LoggerName], run: Path, config: Mapping[str, Any], start: int, tell: Callable[[str], None]
) -> list[Logger]:
    """`config` is recorded where there is a place for it, and a run that goes on with step `start` goes on there too.
    `tell` tells the user that a service failed, which stops no training."""
    made: dict[LoggerName, Callable[[], Logger]] = {
        "tensorboard": lambda: TensorBoard(run, start),
        "wandb": lambda: WandB(run, config),
        "mlflow": lambda: MLflow(run, config),
    }
    return [made[name]() if name == "tensorboard" else Aside(name, made[name], tell) for name in dict.fromkeys(names)]


class TensorBoard(Logger):
    """Files in the run directory."""

    def __init__(self, run: Path, start: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(run / TENSORBOARD), purge_step=start)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.board.add_scalar(name, value, step)

    def page(self, path: Path) -> None:
        """It has no place for pages."""

    def close(self, outcome: Outcome) -> None:
        self.board.close()


class Aside(Logger):
    """A service in a thread of its own: its network may be slow or gone, and training does not wait for it. The first
    failure is told once, and nothing more is sent."""

    def __init__(self, name: str, make: Callable[[], Logger], tell: Callable[[str], None]) -> None:
        self.name, self.tell, self.failed = name, tell, False
        self.calls: SimpleQueue[Callable[[Logger], None] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, args=(make,), name=f"log to {name}", daemon=True)
        self.thread.start()

    def _work(self, make: Callable[[], Logger]) -> None:
        try:
            logger = make()
            while (call := self.calls.get()) is not None:
                call(logger)
        except Exception as error:  # of the client, of the network, of the server: each has its own kinds
            self.failed = True
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].split(". ")[0]
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        self.tell(f"--log-to {self.name} failed ({reason}): nothing more is logged there; metrics.jsonl has everything")

    def _do(self, call: Callable[[Logger], None] | None) -> None:
        if not self.failed:
            self.calls.put(call)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._do(lambda logger: logger.write(step, metrics))

    def page(self, path: Path) -> None:
        self._do(lambda logger: logger.page(path))

    def close(self, outcome: Outcome) -> None:
        self._do(lambda logger: logger.close(outcome))
        self._do(None)
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            self._stop(f"it did not take everything within {PATIENCE:.0f} s")


class WandB(Logger):
    """Weights & Biases. Its own variables choose project, entity and mode: WANDB_PROJECT, WANDB_MODE=offline …"""

    def __init__(self, run: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self.html = wandb.Html
        self.session = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            dir=str(run),
            id=kept_id(run, "wandb"),
            resume="allow",
            config=dict(config),
            allow_val_change=True,  # a resumed run may have another device
            settings=wandb.Settings(silent=True, console="off"),
        )
        keep_id(run, "wandb", self.session.id)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if step >= self.session.step:  # the steps since a checkpoint are there already, with the same numbers
            self.session.log(dict(metrics), step=step)

    def page(self, path: Path) -> None:
        self.session.log({"report": self.html(str(path), inject=False)})

    def close(self, outcome: Outcome) -> None:
        self.session.finish(exit_code=0 if outcome == "finished" else 1)


class MLflow(Logger):
    """Its own variables choose server and experiment: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, run: Path, config: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self.metric, self.client, self.waiting, self.sent = Metric, MlflowClient(), list[Any](), time.monotonic()
        if (known := kept_id(run, "mlflow")) is not None:
            self.id, self.next = known, 1 + max((each.step for each in self._losses(known)), default=-1)
            self.client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self.client.get_experiment_by_name(name)
        place = self.client.create_experiment(name) if experiment is None else experiment.experiment_id
        self.id, self.next = self.client.create_run(place, run_name=run.name).info.run_id, 0
        keep_id(run, "mlflow", self.id)
        parameters = [Param(key, str(value)[:LONGEST]) for key, value in flat(config).items()]
        for first in range(0, len(parameters), PARAMETERS):
            self.client.log_batch(self.id, params=parameters[first : first + PARAMETERS])

    def _losses(self, known: str) -> Iterable[Any]:
        found: Iterable[Any] = self.client.get_metric_history(known, "loss")
        return found

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if step >= self.next:
            now = int(1000 * time.time())
            self.waiting += [self.metric(name, value, now, step) for name, value in metrics.items()]
        if len(self.waiting) >= AT_ONCE or time.monotonic() - self.sent > EVERY:
            self._send()

    def _send(self) -> None:
        self.client.log_batch(self.id, metrics=self.waiting)
        self.waiting, self.sent = [], time.monotonic()

    def page(self, path: Path) -> None:
        self.client.log_artifact(self.id, str(path))

    def close(self, outcome: Outcome) -> None:
        self._send()
        self.client.set_terminated(self.id, "FINISHED" if outcome == "finished" else "KILLED")


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Groups of settings as one: {"optim": {"lr": 0.1}} -> {"optim.lr": 0.1}."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {above + name: value}
    return found


def kept_id(run: Path, name: str) -> str | None:
    """What the service called the run when it began."""
    try:
        known = json.loads((run / LOGGERS).read_text(encoding="utf-8")).get(name)
    except (OSError, ValueError, AttributeError, RecursionError):
        return None  # none yet; a damaged file costs a second run there, no training
    return known if isinstance(known, str) else None


def keep_id(run: Path, name: str, known: str) -> None:
    with locked(run / LOGGERS):
        others = {other: found for other in ("wandb", "mlflow") if (found := kept_id(run, other)) is not None}
        with replacing(run / LOGGERS) as file:
            file.write(json.dumps({**others, name: known}).encode() + b"\n")
