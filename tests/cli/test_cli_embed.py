"""`embed` and `export`: what others get of a small run."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from running import mistake
from safetensors.torch import load_file

from manyview.cli import main
from manyview.evaluate.embed import Embedded, embed
from manyview.evaluate.split import camera_of


def test_embeddings_come_with_ids_and_labels(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "features.npz"
    assert main(["embed", str(run), "--data", "scenes:64", "--out", str(out), "--batch-size", "40"]) == 0
    assert f"{out}: 64 embeddings of scenes, unreadable images: 0" in capsys.readouterr().out
    with np.load(out, allow_pickle=False) as file:
        assert file["embeddings"].shape == (64, 512)
        assert len(file["ids"]) == len(file["labels"]) == 64


def test_labels_that_cannot_be_read_are_not_needed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice that the refusal gives is a flag of the command."""
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    for number in range(4):
        Image.new("RGB", (12, 12 + number), (60 * number, 0, 0)).save(tmp_path / f"{number}.png")
        (tmp_path / f"{number}.cls").write_text("a name")
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        for path in sorted([*tmp_path.glob("*.png"), *tmp_path.glob("*.cls")]):
            tar.add(path, path.name)
    words = ["embed", str(run), "--data", str(tmp_path / "set.tar"), "--out", str(tmp_path / "f.npz"), "--workers", "0"]
    assert "use --unlabelled" in mistake(capsys, *words)
    assert main([*words, "--unlabelled"]) == 0
    assert main(["evaluate", "recognise", str(run), "--data", str(tmp_path / "set.tar"), "--no-baselines"]) == 0


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


@pytest.mark.parametrize("quiet", [True, False])
def test_one_rank_shows_the_progress_of_embedding(
    quiet: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def noted(*arguments: Any, **settings: Any) -> Embedded:
        shown.append(settings["progress"])
        return embed(*arguments, **settings)

    monkeypatch.setattr("manyview.evaluate.embed.embed", noted)
    monkeypatch.setattr("manyview.cli.embed.console", Console(quiet=quiet))
    assert main(["embed", str(run), "--data", "scenes:64", "--out", str(tmp_path / "features.npz")]) == 0
    assert shown == [not quiet]


def embedded(tmp_path: Path, spec: str | Path, name: str = "f.npz") -> Any:
    out = tmp_path / name
    assert main(["embed", str(spec), "--data", "scenes:64", "--out", str(out)]) == 0
    with np.load(out, allow_pickle=False) as file:
        return file["embeddings"]


def test_weights_of_every_kind_are_embedded_alike(run: Path, tmp_path: Path) -> None:
    whole = embedded(tmp_path, run)
    for form in ("safetensors", "torchvision", "timm", "hf"):
        out = str(tmp_path / (form if form == "hf" else f"{form}.safetensors"))
        assert main(["export", str(run), "--format", form, "--out", out]) == 0
    torch.save({"state_dict": load_file(tmp_path / "torchvision.safetensors")}, tmp_path / "resnet18.pth")
    assert np.array_equal(embedded(tmp_path, run / "encoder.safetensors"), whole)
    assert np.array_equal(embedded(tmp_path, tmp_path / "safetensors.safetensors"), whole)
    assert np.array_equal(embedded(tmp_path, tmp_path / "hf"), whole)
    again = tmp_path / "again.safetensors"  # of a file that says nothing of itself
    assert main(["export", str(tmp_path / "resnet18.pth"), "--format", "timm", "--out", str(again)]) == 0
    assert again.read_bytes() == (tmp_path / "timm.safetensors").read_bytes()


def test_an_unfinished_run_is_remarked_once(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = embedded(tmp_path, run)
    (run / "encoder.safetensors").rename(tmp_path / "encoder.safetensors")
    try:
        capsys.readouterr()
        unfinished = embedded(tmp_path, run)
    finally:
        (tmp_path / "encoder.safetensors").rename(run / "encoder.safetensors")
    assert capsys.readouterr().err == f"{run} is not finished: its encoder is that of the checkpoint after step 2\n"
    assert np.array_equal(unfinished, whole)


@pytest.mark.parametrize("command", [["embed", "--data", "scenes:64"], ["export"]])
def test_weights_that_cannot_be_fetched_cost_one_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # read when it was imported
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    name, *flags = command
    words = [name, "timm:test_resnet", *flags, "--out", str(tmp_path / "out.safetensors")]
    assert "timm's weights of test_resnet cannot be fetched" in mistake(capsys, *words)
    assert not (tmp_path / "out.safetensors").exists()


def test_depth_means_to_other_weights_what_is_said(run: Path, tmp_path: Path) -> None:
    assert main(["export", str(run), "--format", "hf", "--out", str(tmp_path / "folder")]) == 0
    for spec in (tmp_path / "folder", "timm:resnet18", run / "encoder.safetensors"):
        assert camera_of(spec).depth_scale == 0.001
        assert camera_of(spec, depth_scale=0.5).depth_scale == 0.5
