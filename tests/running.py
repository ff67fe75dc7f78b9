"""What tests of whole runs share: commands as processes of their own, and what a run wrote down."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from manyview.cli import main

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SMALL_RUN = ["--batch-size", "16", "--max-steps", "2", "--image-size", "32", "--contrast-every", "0"]


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Command:
    """`manyview …` in a process group of its own, one thread as here, so that results compare byte for byte."""

    def __init__(self, *words: str, log: Path, launcher: Sequence[str] = ("-m", "manyview")) -> None:
        self.log = log
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                [sys.executable, *launcher, *words],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> int:
        return self.process.wait(timeout=200)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds, while the command still runs."""
        deadline = time.monotonic() + 120
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        """As a terminal or a batch system does it: to the whole group."""
        os.killpg(self.process.pid, number)


class TwoRanks(Command):
    """`torchrun --nproc-per-node 2 … -m manyview …`."""

    def __init__(self, *words: str, log: Path, restarts: int = 0) -> None:
        super().__init__(*words, log=log, launcher=[*TORCHRUN, "--max-restarts", str(restarts), "-m", "manyview"])

    def pid_of(self, rank: int) -> int:
        """Of the process whose environment says so, among the children of torchrun."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
        raise AssertionError(f"no rank {rank} among {children}")


def mistake(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a mistake costs."""
    (message,) = mistakes(capsys, *words)
    return message


def mistakes(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines of several mistakes, which are told at once."""
    assert main(list(words)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("manyview: ") for line in lines)
    return [line.removeprefix("manyview: ") for line in lines]
