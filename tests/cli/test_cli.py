"""All commands: the overview, the help of each, and what a mistake costs."""

from pathlib import Path

import pytest
from running import mistake

from manyview.cli import COMMANDS, main


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"manyview {name}" in text for name in COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "jcl"],
        *(["evaluate", protocol] for protocol in ("knn", "linear", "mlp", "linear-sgd", "linear-adam")),
        ["resume"],
        ["embed"],
    ],
)
def test_help_teaches_every_flag(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    assert "--device" in capsys.readouterr().out


def test_mistakes_cost_one_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = ["--out", str(tmp_path / "out")]
    assert "choose one of pretrain" in mistake(capsys, "pretain")
    assert "choose one of au-cl" in mistake(capsys, "pretrain", "jlc")
    assert "choose one of knn" in mistake(capsys, "evaluate", "nn")
    assert "does not exist" in mistake(capsys, "pretrain", "jcl", "--data", str(tmp_path / "none"), *out)
    assert "no images" in mistake(capsys, "pretrain", "jcl", "--data", str(tmp_path / "empty"), *out)
    assert "is not a run directory" in mistake(capsys, "resume", str(tmp_path / "empty"))
    assert "resume" in mistake(capsys, "evaluate", "knn", str(tmp_path / "empty"), "--data", "scenes:64")
    assert "--config" in mistake(
        capsys, "pretrain", "jcl", "--config", str(tmp_path / "none.toml"), "--data", "scenes:64", *out
    )
    assert not (tmp_path / "out").exists()
