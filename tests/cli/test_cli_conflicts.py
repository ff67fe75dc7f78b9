"""All that is wrong with a command is told at once: first what is known without the data, then what the data shows."""

from pathlib import Path

import pytest
from PIL import Image
from running import mistake, mistakes

from manyview.cli import main
from manyview.cli.examples import EXAMPLES


def test_what_is_known_without_the_data_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    words = ["--data", str(tmp_path / "none"), "--out", str(used), "--epoch", "3", "--lr", "fast", "--dim", "0"]
    words += ["--schedule", "cosin", "--time", "1h", "--max-steps", "5", "--backbone", "resnet19", "--device", "gpu"]
    words += ["--augment", "moco", "--init", str(tmp_path / "none.pt"), "--encoded-views", "1"]
    lines = mistakes(capsys, "pretrain", "jcl", *words)
    starts = [
        "--epoch is no flag of `manyview pretrain jcl`: did you mean --epochs?",
        "--lr fast must be a number, such as 0.06",
        "--schedule cosin must be cosine, step or constant (did you mean cosine?)",
        "--dim 0 must be at least 1",
        "--time 1h and --max-steps both say how long to train: leave one out",
        "--device gpu cannot be used here",
        "--encoded-views 1 is less than one sample of 6 views: use 6 or more",
        "--augment moco is not known: choose one of",
        f"--data: '{tmp_path / 'none'}' does not exist",
        f"--init: {tmp_path / 'none.pt'} does not exist",
        "--backbone resnet19 is unknown: did you mean resnet18",
        f"--out {used} is not empty",
    ]
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_flags_that_decide_the_defaults_of_others_are_told_with_other_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = mistakes(capsys, "pretrain", "jcl", "--data", "--out", "--config", "--preset", "--lr", "fast")
    starts = ["--data has no value", "--out has no value", "--config has no value", "--preset has no value"]
    assert [line.partition(":")[0] for line in lines] == [*starts, "--lr fast must be a number, such as 0.06"]
    (tmp_path / "deep.json").write_text("[" * 100_000)
    words = ["--config", str(tmp_path / "deep.json"), "--data", "scenes", "--out", str(tmp_path / "out")]
    assert "deep.json cannot be read (maximum recursion" in mistake(capsys, "pretrain", "jcl", *words)
    assert mistakes(capsys, "views", "--samples", "0")[1:] == ["--samples 0 must be greater than 0"]


def test_other_commands_tell_all_at_once_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = str(tmp_path / "none"), str(tmp_path / "neither")
    words = ["knn", "--data", here, "--test-data", there, "--k", "0", "--temperature", "warm", "--images-per-pass", "0"]
    starts = [
        "--temperature warm must be a number, such as 0.07",
        "--k 0 must be at least 1",
        "--images-per-pass 0 must be greater than 0",
        "evaluate knn needs RUN, as in `manyview evaluate knn runs/jcl --data scenes`",
        f"--data: '{here}' does not exist",
        f"--test-data: '{there}' does not exist",
    ]
    lines = mistakes(capsys, "evaluate", *words)
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_what_the_data_shows_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(8):
        Image.new("RGB", (40 + number, 40), (number, 0, 0)).save(folder / f"{number}.png")
    words = ["--batch-size", "9", "--accumulate", "2", "--queue-size", "20", "--knn-every", "1", "--unlabelled"]
    words += ["--data", str(folder), "--out", str(tmp_path / "run"), "--image-size", "32"]
    assert main(["pretrain", "jcl", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    told = ["--batch-size 9 exceeds the 8", "--batch-size 9 does not divide", "--knn-every 1 needs", "--queue-size 20"]
    assert [next(start for start in told if start in line) for line in lines if line.startswith("manyview")] == told
    assert not (tmp_path / "run").exists()


def test_defaults_give_way_to_what_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (
        ["--image-size", "224"],
        ["--image-size", "8"],
        ["--batch-size", "15"],
        ["--backbone", "vit_tiny_patch16_224"],
        ["--backbone", "alexnet-small"],
        ["--batch-size", "6", "--accumulate", "3"],
        ["--encoded-views", "90"],
    ):
        words = ["--data", "scenes:64", "--out", str(tmp_path / "run"), "--max-steps", "2", "--contrast-every", "0"]
        assert main(["pretrain", "jcl", *words, *more, "--dry-run"]) == 0, (more, capsys.readouterr().err)


@pytest.mark.parametrize("command", EXAMPLES)
def test_a_command_without_its_words_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    if command == "reproduce":  # lists the recipes
        return
    message = mistake(capsys, command)
    assert f"{command} " in message
    assert f"`manyview {command}" in message
    assert "--help`" in message


@pytest.mark.parametrize("command", EXAMPLES)
def test_a_flag_that_is_not_known_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = EXAMPLES[command].split()[1:]
    words = [word.replace("runs/jcl", "nowhere-to-be-found") for word in words]
    lines = mistakes(capsys, *words, "--thread", "3")
    assert f"--thread is no flag of `manyview {command}" in lines[0]
    assert "did you mean --threads?" in lines[0] or command in ("export", "diagnose")
