"""`pretrain`: flags, presets and files of flags."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from running import mistake, mistakes

from manyview.cli import main
from manyview.methods import described
from manyview.run.flags import file_flags
from manyview.run.pretrain import FREE


@pytest.mark.parametrize(
    ("words", "whose", "backbone", "batch"),
    [
        (
            ["jcl"],
            "follow the images and the machine; shown are those for `scenes`, 10,000 images of 32 px",
            "tiny",
            64,
        ),
        (["jcl", "--preset", "paper"], "those of --preset paper.", "resnet50", 512),
        (["jcl", "--preset", "small", "--data", "none/"], "small for 10,000 images of 32 px", "tiny", 64),
        (["cacr", "--preset=paper-cifar"], "paper-cifar for 10,000 images of 32 px", "alexnet-small", 128),
        (["cmc", "--preset", "paper-nyu"], "those of --preset paper-nyu.", "nyu", 256),
    ],
)
def test_help_shows_the_defaults_of_the_preset(
    words: list[str], whose: str, backbone: str, batch: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["pretrain", *words, "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert whose in text
    assert f"`resnet50x0.5` or `resnet50x2`. (default: {backbone})" in text
    assert f"summed over all devices. (default: {batch})" in text


def test_the_help_of_pretrain_lists_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in described())


def test_a_mistyped_flag_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["pretrain", "jcl", "--data", "scenes:64", "--out", str(tmp_path / "run")]
    message = mistake(capsys, *words, "--temprature", "0.1")
    assert "--temprature is no flag of `manyview pretrain jcl`: did you mean --temperature?" in message


def test_small_images_get_small_networks_and_the_reasons_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    flags = ["--batch-size", "16", "--max-steps", "1"]
    assert main(["pretrain", "jcl", "--data", "scenes:64", "--out", str(out), *flags]) == 0
    text = capsys.readouterr().out
    assert "auto (--preset)" in text
    told = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line.startswith(" --")}
    assert told["--backbone"] == "tiny for images of 32 px"
    assert told["--batch-size"] == "16 as asked"
    assert told["--queue-size"] == "32 50% of the samples, so that keys are young"
    assert "measured on 512 images of scenes (test split)" in text
    config = json.loads((out / "config.json").read_text())["config"]
    assert (config["encoder"]["backbone"], config["views"]["image_size"]) == ("tiny", 32)
    assert config["views"]["min_crop"] == 0.6
    assert (config["method"]["queue_size"], config["method"]["momentum"]) == (32, 0.99)
    assert (config["method"]["temperature"], config["method"]["lam"], config["method"]["keys"]) == (0.1, 4.0, 5)


def test_the_papers_batch_is_not_made_smaller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(4):
        Image.new("RGB", (100 + i, 90), (i, 0, 0)).save(folder / f"{i}.png")
    words = ["--data", str(folder), "--out", str(tmp_path / "run"), "--preset", "paper"]
    lines = mistakes(capsys, "pretrain", "jcl", *words)
    # The paper's batch and its queue.
    assert any("--batch-size 512 exceeds the 4 samples" in line for line in lines)
    assert any("exceeds the 4 samples of --data, so that" in line for line in lines)


def test_flags_override_a_config_file_which_overrides_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("lr = 0.5\nbatch-size = 16\n[method]\nqueue_size = 20\nmask-own = true\nmomentum = 0.5\n")
    out = tmp_path / "run"
    words = ["--config", str(file), "--momentum", "0.7", "--max-steps", "1", "--contrast-every", "0"]
    assert main(["pretrain", "moco-v2", "--data", "scenes:64", "--out", str(out), *words]) == 0
    config = json.loads((out / "config.json").read_text())["config"]
    assert (config["optim"]["lr"], config["optim"]["batch_size"]) == (0.5, 16)
    assert (config["method"]["queue_size"], config["method"]["mask_own"]) == (20, True)
    assert config["method"]["momentum"] == 0.7
    assert config["encoder"]["backbone"] == "tiny"


def test_a_runs_own_config_is_a_config_file(run: Path) -> None:
    words = file_flags(run / "config.json")
    assert words[words.index("--backbone") + 1] == "resnet18"
    assert words[words.index("--max-steps") + 1] == "2"
    assert "--mask-own" in words


def test_help_begins_with_the_flags_that_people_use_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["pretrain", "jcl", "--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first = text.split("Used most:")[1].split("\n\n")[0]
    names = [line.split()[0] for line in first.splitlines() if line.startswith("  --")]
    assert names[:4] == ["--data", "--out", "--epochs", "--time"]
    assert {"--batch-size", "--image-size", "--backbone", "--init", "--preset", "--workers", "--threads"} <= {*names}


def test_threads_are_set_and_do_not_make_another_run(run: Path) -> None:
    assert main(["evaluate", "knn", str(run), "--data", "scenes:64", "--threads", "2", "--no-baselines"]) == 0
    assert torch.get_num_threads() == 2
    assert "threads" in FREE
