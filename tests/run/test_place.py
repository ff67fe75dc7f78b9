"""Where a run may begin."""

from pathlib import Path
from typing import Any

import pytest
from running import mistake

from manyview.cli import main
from manyview.run.files import CHECKPOINTS, START

FLAGS = ["--data", "scenes:64", "--batch-size", "16", "--image-size", "8", "--workers", "0", "--max-steps", "2"]
BRIEF = [*FLAGS, "--contrast-every", "0"]


def pretrain(out: Path, *flags: str) -> int:
    return main(["pretrain", "simclr", "--out", str(out), *BRIEF, *flags])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert pretrain(run) == 0
    return run


def stopped_early(run: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    """As one that is killed before its first checkpoint is written."""

    def killed(directory: Path, *_: Any, **__: Any) -> None:
        (directory / CHECKPOINTS).mkdir()
        (directory / CHECKPOINTS / ".step-00000000.pt.0badf00d").write_bytes(b"half")
        (directory / ".config.json.0badf00d").write_bytes(b"{")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("manyview.run.pretrain.save", killed)
        assert pretrain(run, *flags) == 130


def test_a_run_that_was_stopped_before_its_first_checkpoint_begins_anew(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    stopped_early(run, monkeypatch, "--init", str(whole), "--snapshots", "1")
    capsys.readouterr()
    assert "manyview pretrain" in mistake(capsys, "resume", str(run))
    assert pretrain(run) == 0
    assert (run / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()
    assert not (run / START).exists()
    assert not list(run.rglob("*0badf00d"))
    assert not list((run / "snapshots").glob("*"))


@pytest.mark.parametrize(
    "files",
    [
        {"checkpoints/mine.pt": "mine"},
        {"config.json": '{"architectures": ["theirs"]}'},
        {"config.json": None, "notes.txt": "mine"},
        {"config.json": None, "checkpoints/step-00000001.pt": "a run that has begun"},
    ],
)
def test_what_is_not_a_run_that_never_began_is_left_alone(
    files: dict[str, str | None], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    for name, text in files.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text((whole / name).read_text() if text is None else text)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "is not empty" in mistake(capsys, "pretrain", "simclr", "--out", str(run), *BRIEF)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
