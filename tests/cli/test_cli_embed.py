"""`embed` and `export`: what others get of a small run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

from manyview.cli import main
from manyview.evaluate.embed import Embedded, embed


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

    def noted(*arguments: Any, **settings: Any) -> Embedded:
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
