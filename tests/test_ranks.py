"""Whole runs of several processes under `torchrun`: the same as one, and as unshakable."""

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import TwoRanks, lines
from torch import Tensor

from manyview.cli import main
from manyview.diagnose.contrast import CONTRAST
from manyview.run import checkpoint

FLAGS = ["--data", "scenes:64", "--seed", "3", "--batch-size", "16", "--image-size", "16", "--dim", "32"]
FLAGS += ["--contrast-every", "2"]  # epochs of four steps: mostly once, at the end
OWN = {"jcl": ["--queue-size", "40", "--keys", "2"], "moco-v2": ["--queue-size", "40"], "simclr": []}


def words(method: str, out: Path, *flags: str) -> list[str]:
    return ["pretrain", method, *FLAGS, *OWN[method], *flags, "--out", str(out)]


def state(run: Path) -> dict[str, Any]:
    return checkpoint.load(checkpoint.latest(run / "checkpoints"))


def gap(ours: dict[Any, Any], theirs: dict[Any, Any]) -> float:
    """The largest difference between two trees of tensors."""
    assert ours.keys() == theirs.keys()
    return max(
        gap(ours[key], theirs[key])
        if isinstance(ours[key], dict)
        else float((ours[key].double() - theirs[key].double()).abs().max())
        for key in ours
        if isinstance(ours[key], Tensor | dict)
    )


def check_equal(alone: Path, together: Path, leave_out: Callable[[str], bool] = lambda name: False) -> None:
    first, second = state(alone), state(together)
    for one, other in zip(lines(alone), lines(together), strict=True):
        assert abs(one["loss"] - other["loss"]) < 1e-9
        assert one.keys() == other.keys()  # of several ranks one measures contrast too
    mine, yours = ({k: v for k, v in s["method"].items() if not leave_out(k)} for s in (first, second))
    assert gap(mine, yours) < 1e-9  # parameters of both encoders, and the queue
    # SGD's momentum is a sum of the gradients of all steps.
    momentum = first["optimizer"]["state"]
    assert gap(momentum, second["optimizer"]["state"]) < 1e-9
    assert max(float(each["momentum_buffer"].abs().max()) for each in momentum.values()) > 1e-3


# The steps of every method are compared by test_methods_ranks, without a run around them.
@pytest.mark.parametrize(
    "method", ["jcl", *(pytest.param(each, marks=pytest.mark.slow) for each in ("moco-v2", "simclr"))]
)
def test_two_ranks_learn_what_one_learns(tmp_path: Path, method: str) -> None:
    flags = ["--norm", "group", "--precision", "float64", "--max-steps", "5"]
    log = tmp_path / "log"
    assert main(words(method, tmp_path / "alone", *flags)) == 0
    assert TwoRanks(*words(method, tmp_path / "together", *flags), log=log).wait() == 0, log.read_text()
    check_equal(tmp_path / "alone", tmp_path / "together")
    last, other = lines(tmp_path / "alone")[-1], lines(tmp_path / "together")[-1]
    assert [other[key] for key in CONTRAST] == pytest.approx([last[key] for key in CONTRAST], abs=1e-9)


def test_keys_shuffled_over_ranks_are_normalised_as_in_parts_of_one_batch(tmp_path: Path) -> None:
    """Shuffle-BN on two ranks is split batch normalisation on one, as the shuffle is the same function of the step."""
    flags, log = ["--precision", "float64", "--max-steps", "5"], tmp_path / "log"
    assert main(words("jcl", tmp_path / "alone", *flags, "--bn-splits", "2")) == 0
    together = words("jcl", tmp_path / "together", *flags, "--bn-splits", "1")
    assert TwoRanks(*together, log=log).wait() == 0, log.read_text()
    # One process averages the running statistics over its parts; of two, each keeps its own.
    check_equal(tmp_path / "alone", tmp_path / "together", leave_out=lambda name: "running" in name)


def test_synchronised_statistics_are_those_of_one_large_batch(tmp_path: Path) -> None:
    flags, log = ["--precision", "float64", "--max-steps", "5", "--bn-splits", "1"], tmp_path / "log"
    assert main(words("moco-v2", tmp_path / "alone", *flags)) == 0
    together = words("moco-v2", tmp_path / "together", *flags, "--norm", "sync")
    assert TwoRanks(*together, log=log).wait() == 0, log.read_text()
    check_equal(tmp_path / "alone", tmp_path / "together")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")
def test_killed_ranks_restart_all_and_change_nothing(tmp_path: Path) -> None:
    whole, killed, log = tmp_path / "whole", tmp_path / "killed", tmp_path / "log"
    flags = ["--max-steps", "24", "--checkpoint-every", "3", "--contrast-every", "4"]
    assert TwoRanks(*words("jcl", whole, *flags), log=log).wait() == 0, log.read_text()
    run = TwoRanks(*words("jcl", killed, *flags), log=log, restarts=3)
    for victim, step in (1, random.randrange(1, 4) * 3), (0, random.randrange(4, 7) * 3):
        run.wait_until((killed / f"checkpoints/step-{step:08d}.pt").exists)
        os.kill(run.pid_of(victim), signal.SIGKILL)
    assert run.wait() == 0, log.read_text()
    assert log.read_text().count(f"resuming {killed}") == 2
    assert (killed / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()
    assert [entry["step"] for entry in lines(killed)] == list(range(24))
    for key in ("loss", *CONTRAST):
        assert [entry.get(key) for entry in lines(killed)] == [entry.get(key) for entry in lines(whole)]


def test_a_restart_never_goes_on_with_somebody_elses_run(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    assert main(words("moco-v2", run, "--max-steps", "2")) == 0
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert TwoRanks(*words("moco-v2", run, "--max-steps", "2"), log=log).wait() != 0
    assert f"--out {run} is not empty" in log.read_text()
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_signal_stops_all_ranks_after_the_same_step(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    process = TwoRanks(*words("jcl", run, "--max-steps", "5000", "--log-every", "1"), log=log)
    process.wait_until(lambda: "step 2/5000" in log.read_text())
    process.process.send_signal(signal.SIGTERM)  # torchrun passes it on
    assert process.wait() != 0
    assert "stopped by SIGTERM" in log.read_text()
    assert (run / f"checkpoints/step-{len(lines(run)):08d}.pt").exists()


def test_a_batch_that_ranks_cannot_share_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    odd = ["pretrain", "simclr", "--data", "scenes:64", "--batch-size", "15", "--out", str(tmp_path / "run")]
    assert TwoRanks(*odd, log=log).wait() != 0
    assert "--batch-size 15 does not divide into equal parts by the 2 processes" in log.read_text()
    assert not (tmp_path / "run").exists()
