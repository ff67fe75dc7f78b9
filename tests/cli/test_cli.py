"""All commands: the overview, the help of each, and what a mistake costs."""

from pathlib import Path

import pytest
from running import mistake, mistakes

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
    none, empty = str(tmp_path / "none"), str(tmp_path / "empty")
    assert f"--data: '{none}' does not exist" in mistake(capsys, "pretrain", "jcl", "--data", none, *out)
    assert f"--data: '{empty}/' holds no images" in mistake(capsys, "pretrain", "jcl", "--data", empty, *out)
    assert f"--data: '{none}' does not exist" in mistake(capsys, "pack", "--data", none, *out)
    assert f"--split test: '{empty}' has no test split: use" in mistake(
        capsys, "pack", "--data", empty, "--split", "test", *out
    )
    assert "is not a run directory" in mistake(capsys, "resume", str(tmp_path / "empty"))
    assert "give the --out of" in mistake(capsys, "evaluate", "knn", str(tmp_path / "empty"), "--data", "scenes:64")
    assert "--config" in mistake(
        capsys, "pretrain", "jcl", "--config", str(tmp_path / "none.toml"), "--data", "scenes:64", *out
    )
    assert not (tmp_path / "out").exists()


def test_paths_are_shown_as_they_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "[b]my[" / "views]:x:.png"  # which rich would take for styles and an emoji
    assert main(["views", "--data", "scenes:8", "--image-size", "8", "--samples", "1", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: views of 8 px")


def test_a_path_that_the_system_refuses_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 5000
    ending = "is refused (File name too long): check the path, who may use it, and the room on its disk"
    assert mistake(capsys, "pretrain", "jcl", "--data", name, "--out", "out") == f"{name} {ending}"
    assert mistake(capsys, "evaluate", "knn", name, "--data", "scenes:64") == f"{name}/start.safetensors {ending}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrain", "jcl", "--lr", "-1"], "--lr -1 must be greater than 0"),
        (["pretrain", "jcl", "--keys", "0"], "--keys 0 must be greater than 0"),
        (["pretrain", "jcl", "--clip-grad", "-1"], "--clip-grad -1 must be greater than 0"),
        (["pretrain", "jcl", "--bn-splits", "0"], "--bn-splits 0 must be at least 1"),
        (["views", "--image-size", "0"], "--image-size 0 must be greater than 0"),
        (["evaluate", "knn", "none", "--temperature", "0"], "--temperature 0 must be greater than 0"),
        (["evaluate", "knn", "none", "--images-per-pass", "0"], "--images-per-pass 0 must be greater than 0"),
        (["embed", "none", "--workers", "-1"], "--workers -1 must not be negative"),
        (["pack", "--image-size", "0"], "--image-size 0 must be greater than 0"),
    ],
)
def test_bounds_are_checked_before_anything_is_opened(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [] if words[0] == "evaluate" else ["--out", str(tmp_path / "out")]
    first, *others = mistakes(capsys, *words, "--data", str(tmp_path / "nowhere"), *place)
    assert message in first
    assert all("nowhere' does not exist" in other for other in others)
