"""What is told of a run while it goes on."""

import io
import time
from pathlib import Path

from rich.console import Console

from manyview.run.log import Log

METRICS = {"loss": 1.2345, "lr": 0.03, "images_per_s": 10.0, "wait": 0.25}


def log(run: Path, console: Console, silence: float = 30.0) -> Log:
    run.mkdir()
    return Log(run, console, [], start=0, steps=100, every=50, batch_size=20, pauses={"save": 10}, silence=silence)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_log_is_never_silent_for_long(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=80)
    with log(tmp_path / "run", console, silence=0.1) as told:
        deadline = time.monotonic() + 20
        while not printed(console):  # nothing is done yet
            assert time.monotonic() < deadline
            time.sleep(0.01)
        told.write(0, METRICS)
        while not any("loss" in line for line in printed(console)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    lines = printed(console)
    assert lines[0] == "step 0/100  no step yet"
    assert lines[-1] == "step 1/100  loss 1.234  lr 0.03  10 images/s  waiting 25%  eta 3:18"
    time.sleep(0.3)
    assert printed(console) == lines  # the run has ended


def test_a_log_has_a_line_every_n_steps(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=80)
    with log(tmp_path / "run", console) as told:
        for step in range(100):
            told.write(step, METRICS)
    assert [line.split()[1] for line in printed(console)] == ["50/100", "100/100"]


def test_a_terminal_has_a_bar_alone(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with log(tmp_path / "run", console, silence=0.01) as told:
        told.write(0, METRICS)
        told.progress.refresh()
        time.sleep(0.1)
    text = console.file.getvalue() if isinstance(console.file, io.StringIO) else ""
    assert "eta 3:18" in text
    assert "step 1/100 " not in text
