"""`views`: the picture is what a run trains on."""

from pathlib import Path

import pytest
from PIL import Image
from running import mistake

from manyview.cli import main
from manyview.data import open_source


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
    assert "views of 32 px, augmentation moco-v2, crops from 60% of the area (--preset auto)" in capsys.readouterr().out
    assert drawn(tmp_path, "--method", "jcl", "--keys", "2") == 1 + 3
    assert drawn(tmp_path, "--method", "cacr", "--views", "3") == 1 + 3
    assert drawn(tmp_path, "--method", "moco-v2", "--config", str(run / "config.json"), "--augment", "simclr") == 1 + 2
    assert drawn(tmp_path, "--method", "cl", "--preset=paper-cifar", "--min_crop", "0.3", "--image-size", "48") == 1 + 2
    assert (
        "views of 48 px, augmentation cifar, crops from 30% of the area (--preset paper-cifar)"
        in capsys.readouterr().out
    )


def test_the_views_drawn_are_those_of_the_seed(tmp_path: Path) -> None:
    pictures = []
    for seed in ("0", "0", "1"):
        drawn(tmp_path, "--seed", seed)
        pictures.append((tmp_path / "views.png").read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]


def test_mistakes_about_views_cost_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["views", "--data", "scenes:64", "--out", str(tmp_path / "none" / "views.png")]
    open_source("scenes:64")
    capsys.readouterr()  # which tells that they are packed
    assert "--samples 0 must be greater than 0" in mistake(capsys, *words, "--samples", "0")
    assert "--views 1 leaves a query without a positive" in mistake(capsys, *words, "--method", "cacr", "--views", "1")
    assert "'3' is no view" in mistake(capsys, *words, "--method", "cmc", "--views", "3")
    (tmp_path / "none").write_text("a file")
    assert "views.png cannot be written" in mistake(capsys, *words)
    assert "is a directory: name a file" in mistake(capsys, *words[:-1], str(tmp_path))


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
