"""Whole runs on images that are not RGB of 8 bits: 16-bit TIFFs of five channels, grey, and ranges of values."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from running import mistake

import manyview
from manyview.cli import main
from manyview.data import open_source

FLAGS = ["--batch-size", "8", "--max-steps", "4", "--image-size", "24", "--workers", "0", "--contrast-every", "2"]


@pytest.fixture(scope="module")
def bands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images of two classes and of various sizes, planar, interleaved or in pages."""
    root = tmp_path_factory.mktemp("bands")
    draws = np.random.default_rng(0)
    for number in range(24):
        values = draws.integers(3000, 60_000, (5, 28 + number % 3, 30)).astype(np.uint16) // (1 + number % 2)
        path = root / ("water", "forest")[number % 2] / f"{number}.tif"
        path.parent.mkdir(exist_ok=True)
        interleaved = number % 3 == 0
        layout = {0: {"planarconfig": "contig"}, 1: {"planarconfig": "separate"}, 2: {}}[number % 3]
        tifffile.imwrite(path, values.transpose(1, 2, 0) if interleaved else values, photometric="minisblack", **layout)
    return root


@pytest.fixture(scope="module")
def trained(bands: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    words = ["--checkpoint-every", "2", "--keep", "9", "--knn-every", "1"]
    assert main(["pretrain", "jcl", "--data", str(bands), "--out", str(out), "--channels", "5", *FLAGS, *words]) == 0
    return out


def test_a_run_records_the_channels_and_how_they_are_normalised(bands: Path, trained: Path) -> None:
    config = json.loads((trained / "config.json").read_text())["config"]
    assert config["data"]["channels"] == 5
    values = [tifffile.imread(path) for path in sorted(bands.rglob("*.tif"))]
    planes = [x.transpose(2, 0, 1) if x.shape[2] == 5 else x for x in values]
    pixels = np.concatenate([x.reshape(5, -1) for x in planes], 1) / 65_535
    assert np.allclose(config["views"]["channel_mean"], pixels.mean(1), atol=1e-6)
    assert np.allclose(config["views"]["channel_std"], pixels.std(1), atol=1e-6)
    encoder = manyview.load(trained)
    assert np.allclose(encoder.card.mean, config["views"]["channel_mean"])
    assert encoder(planes[0].transpose(1, 2, 0)).shape == (1, encoder.num_features)
    assert (trained / "report.html").stat().st_size > 10_000


def test_an_interrupted_run_gives_the_same_encoder(bands: Path, trained: Path, tmp_path: Path) -> None:
    again = tmp_path / "run"
    shutil.copytree(trained, again)
    for path in (again / "encoder.safetensors", again / "checkpoints" / "step-00000004.pt"):
        path.unlink()
    assert main(["resume", str(again)]) == 0
    assert (again / "encoder.safetensors").read_bytes() == (trained / "encoder.safetensors").read_bytes()
    one, other = ((run / "metrics.jsonl").read_text().splitlines() for run in (trained, again))
    assert [json.loads(line)["loss"] for line in one] == [json.loads(line)["loss"] for line in other]


def test_the_encoder_is_evaluated_embedded_exported_and_reported(
    bands: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file = ["--data", str(bands)], str(trained / "encoder.safetensors")
    assert main(["evaluate", "linear", str(trained), *data, "--no-random"]) == 0
    assert main(["report", str(trained)]) == 0
    exported, embedded = tmp_path / "e.safetensors", tmp_path / "f.npz"
    for _ in range(2):  # what is there is replaced
        assert main(["export", str(trained), "--out", str(exported)]) == 0
        assert main(["embed", file, *data, "--out", str(embedded)]) == 0
    features = np.load(embedded)["embeddings"]
    assert features.shape == (24, manyview.load(exported).num_features)
    assert "24 embeddings of" in capsys.readouterr().out


def test_packed_images_keep_their_channels(bands: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = str(tmp_path / "p.safetensors")
    words = ["pack", "--data", str(bands), "--out", packed, "--image-size", "24", "--channels", "5"]
    assert main(words) == main(words) == 0
    out = tmp_path / "run"
    assert main(["pretrain", "simclr", "--data", packed, "--out", str(out), "--channels", "5", *FLAGS]) == 0
    assert "24 images of 5 channels and 16 bits" in " ".join(capsys.readouterr().out.split())
    message = mistake(capsys, "pretrain", "simclr", "--data", packed, "--out", str(tmp_path / "b"))
    assert "has images of 5 channels, not 3" in message
    assert not (tmp_path / "b").exists()


def test_the_views_of_many_channels_are_drawn_and_what_is_left_out_is_said(
    bands: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["views", "--data", str(bands), "--channels", "5", "--samples", "2", "--out", str(tmp_path / "v.png")]
    assert main([*words, "--batch-size", "8"]) == main([*words, "--batch-size", "8"]) == 0
    with Image.open(tmp_path / "v.png") as picture:
        assert picture.mode == "RGB"
    said = " ".join(capsys.readouterr().out.split())
    assert "without saturation, hue, greyscale (--channels 5)" in said


def test_grey_images_train_a_network_of_one_channel(tmp_path: Path) -> None:
    root = tmp_path / "grey"
    root.mkdir()
    for number in range(16):
        value = np.random.default_rng(number).integers(0, 4095, (30, 40 + number), dtype=np.uint16)
        Image.fromarray(value).save(root / f"{number}.png")
    words = ["--channels", "1", "--value-range", "0", "4095", *FLAGS]
    out = tmp_path / "run"
    assert main(["pretrain", "simclr", "--data", str(root), "--out", str(out), *words]) == 0
    config = json.loads((out / "config.json").read_text())["config"]
    assert 0.45 < config["views"]["channel_mean"][0] < 0.55, "the range is the one that was given"
    assert manyview.load(out).card.in_channels == 1


def test_mistakes_about_channels_cost_one_line_each(
    bands: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "none")]
    five = ["--data", str(bands), "--channels", "5", *out, *FLAGS]
    assert "it has 5 channels, not 3: use --channels 5" in mistake(
        capsys, "pretrain", "jcl", "--data", str(bands), *out
    )
    message = mistake(capsys, "pretrain", "cmc", *five, "--views", "lab")
    assert "--channels 5: views lab are those of RGB images: use --channels 3" in message
    assert "leave +ra out" in mistake(capsys, "pretrain", "simclr", *five, "--augment", "cmc+ra")
    message = mistake(capsys, "pretrain", "simclr", *five, "--channel-mean", "0.5")
    assert "--channel-mean has 1 numbers for 5 channels: give as many" in message
    message = mistake(capsys, "pretrain", "simclr", *five, "--value-range", "9", "9")
    assert "--value-range 9 9: black, the first, must be less than white, the second" in message
    open_source("scenes:64")  # which packs them, and says so
    capsys.readouterr()
    scenes = ["pretrain", "simclr", "--data", "scenes:64", *out]
    assert "--value-range 0 9 is for image files" in mistake(capsys, *scenes, "--value-range", "0", "9")
    assert "not 1: name other data, or train with --channels 3" in mistake(capsys, *scenes, "--channels", "1")
    assert "--channels 0 must lie between 1 and 1024" in mistake(capsys, *scenes, "--channels", "0")
    assert "has images of 3 channels, not 5" in mistake(capsys, "evaluate", "knn", str(trained), "--data", "scenes:64")
    assert not (tmp_path / "none").exists()
