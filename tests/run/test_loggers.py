"""Services that a run is logged to: offline, resumed, absent, and failing."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from running import SMALL_RUN, lines, mistakes

from manyview.cli import main
from manyview.errors import UserError
from manyview.run import loggers
from manyview.run.loggers import Aside, Logger, MLflow, Outcome, check_loggers, flat, keep_id, kept_id, open_loggers

# Their packages warn of things of their own.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


class Kept(Logger):
    """Remembers what it is given; fails in one step if asked to."""

    def __init__(self, fails: int = -1) -> None:
        self.fails, self.steps, self.pages, self.outcome = fails, list[int](), list[Path](), ""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self.fails:
            raise ConnectionError("no route to host. Try again\nlater")
        self.steps.append(step)

    def page(self, path: Path) -> None:
        self.pages.append(path)

    def close(self, outcome: Outcome) -> None:
        self.outcome = outcome


def test_a_service_in_its_thread_gets_everything_in_order(tmp_path: Path) -> None:
    kept, told = Kept(), list[str]()
    aside = Aside("wandb", lambda: kept, told.append)
    for step in range(100):
        aside.write(step, {"loss": 1.0})
    aside.page(tmp_path / "report.html")
    aside.close("finished")
    assert (kept.steps, kept.pages, kept.outcome) == (list(range(100)), [tmp_path / "report.html"], "finished")
    assert told == []


def failing() -> Logger:
    raise OSError("the server is gone")


@pytest.mark.parametrize(
    ("make", "words"), [(lambda: Kept(fails=3), "no route to host"), (failing, "the server is gone")]
)
def test_a_failure_is_told_once_and_stops_nothing(make: Callable[[], Logger], words: str) -> None:
    told: list[str] = []
    aside = Aside("mlflow", make, told.append)
    for step in range(10):
        aside.write(step, {"loss": 1.0})
    aside.close("finished")
    assert len(told) == 1
    assert told[0].startswith(f"--log-to mlflow failed ({words}): nothing more is logged there")


def test_a_service_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "PATIENCE", 0.1)
    told: list[str] = []
    aside = Aside("wandb", lambda: time.sleep(3) or Kept(), told.append)  # type: ignore[func-returns-value]
    began = time.perf_counter()
    aside.write(0, {"loss": 1.0})
    aside.close("finished")
    assert time.perf_counter() - began < 2
    assert "did not take everything" in told[0]


def test_an_absent_package_is_said_before_the_data_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda name: None if name == "wandb" else object())
    with pytest.raises(UserError, match=r"--log-to wandb needs its package: pip install 'manyview\[wandb\]'"):
        check_loggers(["tensorboard", "wandb"])
    check_loggers(["tensorboard", "mlflow"])
    words = ["pretrain", "simclr", "--data", "nowhere", "--out", str(tmp_path / "run"), "--log-to", "wandb"]
    assert "manyview[wandb]" in mistakes(capsys, *words)[0]


def test_the_ids_of_services_are_kept_beside_each_other(tmp_path: Path) -> None:
    assert kept_id(tmp_path, "wandb") is None
    keep_id(tmp_path, "wandb", "a")
    keep_id(tmp_path, "mlflow", "b")
    assert (kept_id(tmp_path, "wandb"), kept_id(tmp_path, "mlflow")) == ("a", "b")
    (tmp_path / "loggers.json").write_text("[")
    assert kept_id(tmp_path, "wandb") is None


def test_settings_in_groups_become_one_list() -> None:
    assert flat({"optim": {"lr": 0.1, "more": {"a": 1}}, "x": None}) == {"optim.lr": 0.1, "optim.more.a": 1, "x": None}


def all_there(run: Path) -> Any:
    """The one run that MLflow has."""
    from mlflow import MlflowClient

    client = MlflowClient()
    [experiment] = [each for each in client.search_experiments() if each.name == "manyview"]
    [found] = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == kept_id(run, "mlflow")
    return client, found


def test_mlflow_has_settings_metrics_and_page_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    run = tmp_path / "run"
    run.mkdir()
    config = {"optim": {"lr": 0.03}, **{f"setting{number}": number for number in range(150)}}
    first = MLflow(run, config)
    for step in range(4):
        first.write(step, {"loss": 1.0 - step / 10, "lr": 0.03})
    first.close("interrupted")
    client, found = all_there(run)
    assert (found.info.status, found.info.run_name) == ("KILLED", "run")
    assert found.data.params.items() >= {"optim.lr": "0.03", "setting149": "149"}.items()
    again = MLflow(run, config)  # from a checkpoint after two steps: the same numbers come again
    for step in range(2, 6):
        again.write(step, {"loss": 1.0 - step / 10, "lr": 0.03})
    (run / "report.html").write_text("page")
    again.page(run / "report.html")
    again.close("finished")
    client, found = all_there(run)
    assert found.info.status == "FINISHED"
    history = sorted((each.step, each.value) for each in client.get_metric_history(found.info.run_id, "loss"))
    assert history == [(step, pytest.approx(1.0 - step / 10)) for step in range(6)]
    assert [each.path for each in client.list_artifacts(found.info.run_id)] == ["report.html"]


def test_a_run_is_logged_where_it_is_asked_to_and_goes_on_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: pretrain, then a resume to other loggers from the checkpoint before the last step."""
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    run = tmp_path / "run"
    words = ["--data", "scenes:64", "--out", str(run), *SMALL_RUN, "--checkpoint-every", "1"]
    assert main(["pretrain", "simclr", *words, "--log-to", "wandb", "mlflow"]) == 0
    assert "failed" not in capsys.readouterr().out
    assert not (run / "tensorboard").exists()
    known = json.loads((run / "loggers.json").read_text())
    assert known.keys() == {"wandb", "mlflow"}
    assert list((run / "wandb").glob(f"offline-run-*-{known['wandb']}/files/media/html/*.html"))
    client, found = all_there(run)
    assert found.data.metrics.keys() == lines(run)[-1].keys() - {"step"}
    assert (
        found.data.params.items() >= {"method.name": "simclr", "optim.max_steps": "2", "images.name": "scenes"}.items()
    )
    (run / "checkpoints" / "step-00000002.pt").unlink()
    assert main(["resume", str(run), "--log-to", "mlflow", "tensorboard"]) == 0
    assert (run / "tensorboard").is_dir()
    assert json.loads((run / "loggers.json").read_text()) == known
    _, found = all_there(run)
    assert [each.step for each in client.get_metric_history(found.info.run_id, "loss")] == [0, 1]
    assert found.info.status == "FINISHED"


def test_the_default_is_tensorboard_alone(tmp_path: Path) -> None:
    [only] = open_loggers(["tensorboard"], tmp_path, {}, 0, print)
    only.write(0, {"loss": 1.0})
    only.close("finished")
    assert list((tmp_path / "tensorboard").glob("events*"))
    assert open_loggers([], tmp_path, {}, 0, print) == []
