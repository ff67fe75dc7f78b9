import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import torch

from manyview.errors import UserError
from manyview.run import checkpoint


def state(value: float) -> dict[str, object]:
    return {"step": 1, "weights": torch.full((3,), value), "config": "{}"}


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 12, state(2.5), keep=3)
    back = checkpoint.load(path)
    assert path.name == "step-00000012.pt"
    assert torch.equal(back["weights"], torch.full((3,), 2.5))
    assert back["config"] == "{}"


def test_only_the_newest_stay_and_latest_is_one_of_them(tmp_path: Path) -> None:
    for step in (0, 5, 10, 15):
        checkpoint.save(tmp_path, step, state(step), keep=2)
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-00000010.pt", "step-00000015.pt"]
    assert checkpoint.latest(tmp_path).name == "step-00000015.pt"
    assert float(checkpoint.load(tmp_path / "latest.pt")["weights"][0]) == 15


def test_a_crash_while_writing_leaves_the_previous_one_loadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, state(1), keep=1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"\(No space left on device\): make room, then continue with `manyview resume"):
        checkpoint.save(tmp_path, 2, state(2), keep=1)
    assert float(checkpoint.load(checkpoint.latest(tmp_path))["weights"][0]) == 1
    assert float(checkpoint.load(tmp_path / "latest.pt")["weights"][0]) == 1
    assert not list(tmp_path.glob(".step-*"))


def test_a_disk_that_fills_up_while_torch_writes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def full(_: Path) -> Iterator[IO[bytes]]:
        with open("/dev/full", "wb", buffering=0) as file:
            yield file

    monkeypatch.setattr(checkpoint, "replacing", full)
    with pytest.raises(UserError, match=r"\(No space left on device\): make room, then start again"):
        checkpoint.save(tmp_path, 2, state(2), keep=1)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, state(1), keep=1)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"step-00000001\.pt cannot be read \([^.]+\): remove it"):
        checkpoint.load(path)


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"weights": Evil()}, tmp_path / "step-00000001.pt")
    with pytest.raises(UserError, match="cannot be read"):
        checkpoint.load(tmp_path / "step-00000001.pt")
    assert not (tmp_path / "ran").exists()


def test_a_directory_without_checkpoints_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="manyview pretrain"):
        checkpoint.latest(tmp_path)
