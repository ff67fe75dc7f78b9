"""The commands as a user types them, on a small run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

from manyview.cli import COMMANDS, main
from manyview.evaluate.embed import embed
from manyview.evaluate.features import Features
from manyview.methods import described
from manyview.run.flags import file_flags

SMALL = ["--batch-size", "16", "--max-steps", "2", "--image-size", "32", "--contrast-every", "0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    flags = ["--backbone", "resnet18", "--stem", "standard", *SMALL]
    assert main(["pretrain", "moco-v2", "--data", "scenes:64", "--out", str(out), *flags]) == 0
    return out


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a mistake costs."""
    assert main(list(words)) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith("manyview: ")
    return message


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


@pytest.mark.parametrize(
    ("words", "whose", "backbone", "batch"),
    [
        (["jcl"], "those of --preset paper; images of at most 64 px take --preset small: add it", "resnet50", 512),
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


def test_pretrain_alone_lists_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in described())


def test_mistakes_cost_one_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = ["--out", str(tmp_path / "out")]
    assert "choose one of pretrain" in error(capsys, "pretain")
    assert "choose one of au-cl" in error(capsys, "pretrain", "jlc")
    assert "choose one of knn" in error(capsys, "evaluate", "nn")
    assert "does not exist" in error(capsys, "pretrain", "jcl", "--data", str(tmp_path / "none"), *out)
    assert "no images" in error(capsys, "pretrain", "jcl", "--data", str(tmp_path / "empty"), *out)
    assert "is not a run directory" in error(capsys, "resume", str(tmp_path / "empty"))
    assert "resume" in error(capsys, "evaluate", "knn", str(tmp_path / "empty"), "--data", "scenes:64")
    assert "--config" in error(
        capsys, "pretrain", "jcl", "--config", str(tmp_path / "none.toml"), "--data", "scenes:64", *out
    )
    assert not (tmp_path / "out").exists()


def test_a_mistyped_flag_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["pretrain", "jcl", "--data", "scenes:64", "--out", str(tmp_path / "run"), "--temprature", "0.1"])
    assert stop.value.code == 2
    assert "--temperature" in capsys.readouterr().err


def test_small_images_take_the_small_preset_and_say_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = ["--batch-size", "16", "--max-steps", "1"]
    assert main(["pretrain", "jcl", "--data", "scenes:64", "--out", str(out), *flags]) == 0
    text = capsys.readouterr().out
    assert "small (--preset)" in text
    assert "measured on 512 images of scenes (test split)" in text
    config = json.loads((out / "config.json").read_text())["config"]
    assert (config["encoder"]["backbone"], config["views"]["image_size"]) == ("tiny", 32)
    assert config["views"]["min_crop"] == 0.6
    assert (config["method"]["queue_size"], config["method"]["momentum"]) == (8, 0.99)
    assert (config["method"]["temperature"], config["method"]["lam"], config["method"]["keys"]) == (0.1, 4.0, 5)


def test_large_images_take_the_papers_set_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(4):
        Image.new("RGB", (100 + i, 90), (i, 0, 0)).save(folder / f"{i}.png")
    message = error(capsys, "pretrain", "jcl", "--data", str(folder), "--out", str(tmp_path / "run"))
    assert "--batch-size 512 exceeds the 4 samples" in message  # the paper's batch


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
    assert "--no-mask-own" in words


def test_evaluations_are_printed_and_kept_beside_the_random_encoder(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "knn", str(run), "--data", "scenes:64", "--batch-size", "40"]) == 0
    assert main(["evaluate", "linear", str(run), "--data", "scenes:64", "--images-per-pass", "40"]) == 0
    text = capsys.readouterr().out
    assert "random" in text
    assert "test split" in text
    records = json.loads((run / "evaluations.json").read_text())
    assert {(r["protocol"], r["encoder"]) for r in records} == {
        (protocol, encoder) for protocol in ("knn", "linear") for encoder in ("random", "trained")
    }


def test_layers_are_probed_printed_and_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(run), "--data", "scenes:64", "--layer"]
    assert main(["evaluate", "linear", *words, "layer3, layer4,layer3", "--regularisation", "0.01"]) == 0
    assert main(["evaluate", "mlp", *words, "layer4", "--epochs", "2", "--batch-size", "32", "--no-random"]) == 0
    text = capsys.readouterr().out
    assert "layer3" in text
    records = json.loads((run / "evaluations.json").read_text())
    assert records[-1]["settings"]["batch_size"] == 32
    found = [(r["protocol"], r["encoder"], r["layer"]) for r in records]
    layers = [("linear", encoder, layer) for encoder in ("random", "trained") for layer in ("layer3", "layer4")]
    assert [each for each in found if each[2]] == [*layers, ("mlp", "trained", "layer4")]
    message = error(capsys, "evaluate", "mlp", *words, "conv5")
    assert "--layer conv5 is no layer of this backbone: take some of conv1, bn1" in message
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "Linear probe on cached features (regularisation 0.01) · scenes · by layer" in page
    assert "Top-1 by layer. trained encoder: layer3 " in page


def test_the_probe_with_adam_takes_the_papers_settings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "linear-adam", str(run), "--no-random"]
    assert main([*words, "--data", "scenes:200", "--epochs", "2", "--images-per-pass", "50"]) == 0
    assert "linear-adam" in capsys.readouterr().out
    record = json.loads((run / "evaluations.json").read_text())[-1]
    assert record["protocol"] == "linear-adam"
    assert record["settings"] == {
        **{"epochs": 2, "lr": 0.001, "decay": 0.2, "batch_size": 128, "milestones": [0.6, 0.8]}
    }
    assert "--batch-size 128 is not between 1 and the 64 samples" in error(capsys, *words, "--data", "scenes:64")
    assert main(["report", str(run)]) == 0
    assert "Linear probe, Adam with augmentation" in (run / "report.html").read_text()


def test_embeddings_come_with_ids_and_labels(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "features.npz"
    assert main(["embed", str(run), "--data", "scenes:64", "--out", str(out), "--batch-size", "40"]) == 0
    assert f"{out}: 64 embeddings of scenes, unreadable images: 0" in capsys.readouterr().out
    with np.load(out, allow_pickle=False) as file:
        assert file["embeddings"].shape == (64, 512)
        assert len(file["ids"]) == len(file["labels"]) == 64


@pytest.mark.parametrize("sides", [(12, 12), (12, 16)])  # of one size they are packed, and lost before they are read
def test_images_that_could_not_be_embedded_are_counted(
    sides: tuple[int, int],
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    folder, out = tmp_path / "photos", tmp_path / "features.npz"
    folder.mkdir()
    for i in range(40):
        Image.new("RGB", (12, sides[i % 2]), (i, 0, 0)).save(folder / f"{i}.png")
    (folder / "broken.png").write_bytes(b"no image")
    assert main(["embed", str(run), "--data", str(folder), "--out", str(out)]) == 0
    assert f"{out}: 40 embeddings of {folder}/, unreadable images: 1\n" == capsys.readouterr().out
    with np.load(out, allow_pickle=False) as file:
        assert len(file["embeddings"]) == 40


@pytest.mark.parametrize("terminal", [True, False])
def test_embedding_shows_its_progress_on_a_terminal(
    terminal: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def noted(*arguments: Any, **settings: Any) -> Features:
        shown.append(settings["progress"])
        return embed(*arguments, **settings)

    monkeypatch.setattr("manyview.evaluate.embed.embed", noted)
    monkeypatch.setattr("manyview.cli.embed.console", Console(force_terminal=terminal))
    assert main(["embed", str(run), "--data", "scenes:64", "--out", str(tmp_path / "features.npz")]) == 0
    assert shown == [terminal]


def test_exports_load_where_they_are_meant_to(run: Path, tmp_path: Path) -> None:
    import timm
    import torchvision

    for form in ("torchvision", "timm", "safetensors"):
        assert main(["export", str(run), "--format", form, "--out", str(tmp_path / f"{form}.safetensors")]) == 0
    theirs = torchvision.models.resnet18()
    missing, unexpected = theirs.load_state_dict(load_file(tmp_path / "torchvision.safetensors"), strict=False)
    assert (missing, unexpected) == (["fc.weight", "fc.bias"], [])
    timm.create_model("resnet18", num_classes=0).load_state_dict(load_file(tmp_path / "timm.safetensors"))
    assert (
        main(
            [
                "embed",
                str(tmp_path / "safetensors.safetensors"),
                "--data",
                "scenes:64",
                "--out",
                str(tmp_path / "f.npz"),
            ]
        )
        == 0
    )


def test_the_report_sets_another_encoder_beside_the_run(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    flags = [*SMALL[:2], "--max-steps", "1", "--contrast-every", "0", "--image-size", "24"]
    assert main(["pretrain", "simclr", "--data", "scenes:64", "--out", str(other), *flags]) == 0
    assert main(["report", str(run), "--against", str(other)]) == 0
    page = (run / "report.html").read_text()
    assert f"simclr on scenes ({other})" in page
    assert "They agree on" in page
    assert main(["report", str(run)]) == 0
    assert "They agree on" not in (run / "report.html").read_text()


def test_another_encoder_that_is_not_there_costs_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "report.html").read_bytes()
    assert "--against: " in error(capsys, "report", str(run), "--against", str(run / "none"))
    assert (run / "report.html").read_bytes() == before


def test_the_report_is_written_anew(run: Path) -> None:
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert "moco-v2" in (run / "report.html").read_text()


def drawn(tmp_path: Path, *words: str) -> int:
    """How many pictures the rows of a gallery have."""
    out = tmp_path / "views.png"
    assert main(["views", "--data", "scenes:64", "--samples", "2", "--out", str(out), *words]) == 0
    with Image.open(out) as picture:
        assert picture.height == 28 + 2 * (96 + 8 + 28)
        return (picture.width - 8) // (96 + 8)


def test_views_are_drawn_as_a_run_with_these_flags_sees_them(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drawn(tmp_path) == 1 + 6  # the original, the query and five keys of jcl
    assert "views of 32 px, recipe moco-v2, crops from 60% of the area (--preset small)" in capsys.readouterr().out
    assert drawn(tmp_path, "--method", "jcl", "--keys", "2") == 1 + 3
    assert drawn(tmp_path, "--method", "cacr", "--views", "3") == 1 + 3
    assert drawn(tmp_path, "--method", "moco-v2", "--config", str(run / "config.json"), "--augment", "simclr") == 1 + 2
    assert drawn(tmp_path, "--method", "cl", "--preset=paper-cifar", "--min_crop", "0.3", "--image-size", "48") == 1 + 2
    assert "views of 48 px, recipe cifar, crops from 30% of the area (--preset paper-cifar)" in capsys.readouterr().out


def test_the_views_drawn_are_those_of_the_seed(tmp_path: Path) -> None:
    pictures = []
    for seed in ("0", "0", "1"):
        drawn(tmp_path, "--seed", seed)
        pictures.append((tmp_path / "views.png").read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]


def test_mistakes_about_views_cost_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["views", "--data", "scenes:64", "--out", str(tmp_path / "none" / "views.png")]
    assert "--samples 0 must be greater than 0" in error(capsys, *words, "--samples", "0")
    assert "--views 1 leaves a query without a positive" in error(capsys, *words, "--method", "cacr", "--views", "1")
    assert "'3' is no view" in error(capsys, *words, "--method", "cmc", "--views", "3")
    assert "views.png cannot be written" in error(capsys, *words)


def test_images_that_cannot_be_read_are_not_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(40):
        Image.new("RGB", (70 + number, 80), (number, 9, 0)).save(folder / f"{number}.png")
    (folder / "0.png").write_bytes(b"nothing")
    words = ["--samples", "40", "--image-size", "32", "--out", str(tmp_path / "views.png")]
    assert main(["views", "--data", str(folder), *words]) == 0
    with Image.open(tmp_path / "views.png") as picture:
        assert picture.height == 28 + 39 * (96 + 8 + 28)


def test_a_packed_set_is_a_source(tmp_path: Path) -> None:
    packed = tmp_path / "scenes.safetensors"
    assert main(["pack", "--data", "scenes:64", "--out", str(packed)]) == 0
    out = tmp_path / "run"
    assert main(["pretrain", "simclr", "--data", str(packed), "--out", str(out), *SMALL]) == 0
    assert json.loads((out / "config.json").read_text())["data"]["samples"] == 64
