"""Whole runs on views beyond colours: from the command line to an encoder whose views can be judged one by one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from running import lines

from manyview.cli import main
from manyview.data import open_source
from manyview.data.missing import Incomplete
from manyview.encoders import Towers, load
from manyview.fields import FIELDS
from manyview.views.colourspaces import SPLITS

FEW = ["--data", "scenes:64", "--batch-size", "16", "--image-size", "16", "--max-steps", "3", "--contrast-every", "0"]
VIEWS = "lab,depth,normals,segmentation"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("views") / "run"
    flags = ["--views", VIEWS, "--graph", "core", "--core", "depth", "--draw", "20", "--missing", "0.25"]
    assert main(["pretrain", "cmc", *FEW, *flags, "--out", str(out)]) == 0
    return out


def test_a_run_tells_what_it_learnt_from(run: Path) -> None:
    facts = json.loads((run / "config.json").read_text())
    assert facts["data"]["fields"] == ["image", "depth", "normals", "segmentation"]
    assert facts["config"]["data"]["missing"] == 0.25
    assert len(lines(run)) == 3
    assert {"loss", "positive", "information"} <= lines(run)[-1].keys()
    assert (run / "report.html").exists()


def test_the_encoder_takes_what_it_learnt_from_and_normalises_it(run: Path) -> None:
    encoder = load(run)
    assert encoder.card.fields == ("image", "depth", "normals", "segmentation")
    source = Incomplete(open_source("scenes:64").select(encoder.card.fields), 0.25, seed=0)
    index = torch.arange(64)
    samples = source.batch(index)
    assert isinstance(encoder.backbone, Towers)
    views = encoder.backbone.views({name: FIELDS[name].values(field) for name, field in samples.items()})
    for name, view in views.items():
        there = source.present[name] if name in source.present else torch.ones(64, dtype=torch.bool)
        channels = view[there].transpose(0, 1).flatten(1)
        assert channels.mean(1).abs().max() < 1e-3, "black stand-ins were not measured"
        assert (channels.std(1) - 1).abs().max() < 1e-3
    assert encoder(samples).shape == (64, 5 * 256)


def test_views_are_judged_together_and_one_by_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in ([], ["--view", "depth"], ["--view", "L,ab"]):
        assert main(["evaluate", "knn", str(run), "--data", "scenes:64", "--no-random", *flags]) == 0
    records = json.loads((run / "evaluations.json").read_text())
    assert [record["views"] for record in records] == [None, "depth", "L,ab"]
    assert "L,ab" in capsys.readouterr().out
    assert main(["evaluate", "knn", str(run), "--data", "scenes:64", "--view", "dept"]) == 2
    assert "--view dept: choose some of the encoder's views L, ab, depth, normals" in capsys.readouterr().err
    flags = ["--epochs", "1", "--view", "depth", "--no-random"]
    assert main(["evaluate", "linear-sgd", str(run), "--data", "scenes:64", "--batch-size", "32", *flags]) == 0


def test_views_are_embedded_together_and_alone(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, found = ["embed", str(run), "--data", "scenes:64", "--out", str(tmp_path / "features.npz")], []
    for flags in ([], ["--view", "L"]):
        assert main([*words, *flags]) == 0
        with np.load(tmp_path / "features.npz", allow_pickle=False) as file:
            found.append(file["embeddings"])
    assert [each.shape for each in found] == [(64, 5 * 256), (64, 256)]
    np.testing.assert_array_equal(found[1], found[0][:, :256])
    assert main([*words, "--view", "dept"]) == 2
    assert "--view dept: choose some of the encoder's views" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["cmc-moco-pirl", "cmc-patch", "predictive", "pirl"])
def test_the_other_methods_run_from_the_command_line(method: str, tmp_path: Path) -> None:
    own = {"cmc-moco-pirl": ["--queue-size", "32"], "pirl": ["--draw", "20", "--augment", "cmc+ra"]}.get(method, [])
    views = [] if method == "pirl" else ["--views", "L,depth"]
    few = [*FEW, *views, *own, "--out", str(tmp_path / "run")]
    assert main(["pretrain", method, *few]) == 0
    assert load(tmp_path / "run").card.split == ("RGB" if method == "pirl" else "L,depth")


def test_predictions_have_no_contrast_to_measure(tmp_path: Path) -> None:
    out, flags = tmp_path / "run", [*FEW[:-2], "--contrast-every", "1"]
    assert main(["pretrain", "predictive", *flags, "--views", "L,depth", "--out", str(out)]) == 0
    assert not any("entropy" in line for line in lines(out))
    assert main(["diagnose", str(out)]) == 0


def test_views_are_drawn(tmp_path: Path) -> None:
    out = tmp_path / "views.png"
    words = ["views", "--data", "scenes:64", "--method", "cmc", "--views", VIEWS, "--samples", "2", "--out", str(out)]
    assert main(words) == 0
    with Image.open(out) as picture:
        assert picture.width == 8 + 10 * (96 + 8)  # four fields, their views, and L and ab of the image's


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["cmc", "--views", "lab,depth"], "has no depth, only image: take --views of those"),
        (["cmc", "--views", "lab", "--missing", "0.2"], "--missing 0.2 concerns views beyond colours: name some"),
        (["cmc", "--views", "lob"], "--views lob: 'lob' is no view. Take a colour space (lab, luv"),
        (["jcl", "--missing", "0.2"], "--missing 0.2 concerns views beyond colours"),
        (["pirl", "--jigsaw", "1.5"], "--jigsaw 1.5 must lie between 0 and 1"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(20):
        Image.new("RGB", (16, 16), (number, 3 * number, 9)).save(folder / f"{number}.png")
    flags = ["--data", str(folder), "--batch-size", "4", "--max-steps", "1", "--out", str(tmp_path / "run")]
    assert main(["pretrain", *words, *flags]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("space", SPLITS)
def test_grey_images_have_nothing_to_split(space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(20):
        Image.new("RGB", (16, 16), (9 * number,) * 3).save(folder / f"{number}.png")
    flags = ["--data", str(folder), "--batch-size", "4", "--max-steps", "1", "--out", str(tmp_path / "run")]
    assert main(["pretrain", "cmc", "--views", space, *flags]) == 2
    assert f"the images are grey, so that {space} has nothing to split" in capsys.readouterr().err


def test_strided_crops_must_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--data",
        "scenes:64",
        "--image-size",
        "12",
        "--strided",
        "--max-steps",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["pretrain", "cmc-patch", *flags]) == 2
    assert "crops of 16 px do not fit into views of 12 px: use --image-size 32 or more" in capsys.readouterr().err


def test_randaugment_is_not_for_views_that_must_stay_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--views", "lab,depth", "--augment", "cmc+ra", "--draw", "20", "--out", str(tmp_path / "run")]
    assert main(["pretrain", "cmc", *FEW, *flags]) == 2
    assert (
        "--augment cmc+ra would rotate and shear the image, but not depth: use --augment cmc" in capsys.readouterr().err
    )
