"""What a run will take is told after a few steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manyview.cli import main
from manyview.methods import find
from manyview.run import pace, trial
from manyview.run.flags import parse_run
from manyview.train import train

FLAGS = ["--data", "scenes:64", "--batch-size", "8", "--image-size", "8", "--workers", "0", "--max-steps", "400"]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of a trial."""
    found = list[int]()

    def counted(*words: Any, **flags: Any) -> Iterator[Any]:
        for each in train(*words, **flags):
            found.append(each.step)
            yield each

    monkeypatch.setattr("manyview.run.trial.train", counted)
    return found


@pytest.mark.parametrize(("limit", "patience", "steps"), [(0.0, 60.0, trial.WARM_UP + trial.FEWEST), (0.0, 0.0, 1)])
def test_slow_steps_are_not_repeated(
    limit: float, patience: float, steps: int, taken: list[int], tmp_path: Path
) -> None:
    """Where one takes a minute, nobody waits for six of them."""
    config, source, *_ = parse_run(find("simclr"), [*FLAGS, "--out", str(tmp_path / "run")])
    found = trial.try_out(find("simclr"), config, source, limit=limit, patience=patience)
    assert taken == list(range(steps))
    assert found.step > 0


def test_a_step_that_is_not_finite_is_left_to_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--data", "scenes:64", "--batch-size", "8", "--image-size", "8", "--time", "10m", "--lr", "1e38"]
    assert main(["pretrain", "simclr", *flags, "--out", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert " in step " in message
    assert "start again with a lower --lr" in message


def test_a_dry_run_says_what_it_is_busy_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["pretrain", "simclr", *FLAGS, "--out", str(run), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert text.index("measuring how long a step takes") < text.index("measured just now")
    assert not run.exists()


def test_a_time_that_is_too_short_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "simclr", *FLAGS[:-2], "--time", "1s", "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "--time 1s is too short" in capsys.readouterr().out


def test_a_look_at_few_images_takes_no_more_than_they_need(tmp_path: Path) -> None:
    config, source, *_ = parse_run(find("simclr"), [*FLAGS, "--contrast-every", "1", "--out", str(tmp_path / "run")])
    assert pace.looked_at(config, steps=80, per_epoch=8, samples=len(source)) == 10 * 5 * 64
    assert pace.looked_at(config, steps=80, per_epoch=8, samples=5000) == 10 * 5 * 512
