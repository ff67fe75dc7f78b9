"""The README's commands on folders of few and many photographs of mixed sizes, formats and orientations."""

import json
import os
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from PIL import Image
from running import lines, mistake, mistakes

from manyview.cli import main

METHODS = ["jcl", "moco-v2", "simclr", "cacr", "cacr-moco", "cmc", "pvc"]
SIDES = [(120, 90), (90, 120), (200, 133), (101, 151), (128, 128), (320, 80)]
KINDS = ["JPEG", "PNG", "WEBP", "BMP", "TIFF"]
BRIEF = ["--max-steps", "1", "--contrast-every", "0", "--workers", "0"]


def photographs(folder: Path, count: int) -> Path:
    """Colourful ones, a sixth of them turned by their EXIF orientation, some grey or with transparency."""
    folder.mkdir()
    random = np.random.default_rng(count)
    kinds = [random.integers(0, 255, (6, 8, 3), dtype=np.uint8) for _ in range(16)]
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        image = Image.fromarray(np.roll(kinds[number % 16], number // 16, axis=1)).resize(SIDES[number % len(SIDES)])
        if number % 11 == 3:
            image = image.convert("L")
        elif number % 13 == 5 and kind == "PNG":
            image = image.convert("RGBA")
        more = {}
        if number % 6 == 1 and kind == "JPEG":
            exif = Image.Exif()
            exif[0x0112] = 6  # turned by 90°
            more = {"exif": exif}
        image.save(folder / f"{number:05d}.{kind.lower()}", kind, **more)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    top = tmp_path_factory.mktemp("photographs")
    made = {count: photographs(top / str(count), count) for count in (2, 50, 600)}
    many = made[5000] = top / "5000"  # each of 600 about eight times, by links: as many files, made in a moment
    many.mkdir()
    for number, path in zip(range(5000), cycle(sorted(made[600].iterdir())), strict=False):
        (many / f"{number:05d}{path.suffix}").symlink_to(path)
    return made


@pytest.mark.parametrize("count", [2, 50, 600])
@pytest.mark.parametrize("method", METHODS)
def test_pretrain_takes_any_folder(method: str, count: int, folders: dict[int, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["pretrain", method, "--data", str(folders[count]), "--out", str(run), *BRIEF]) == 0
    assert np.isfinite([line["loss"] for line in lines(run)]).all()
    assert (run / "report.html").exists()


@pytest.mark.parametrize("method", METHODS)
def test_many_photographs_are_planned(
    method: str, folders: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run of all steps would be, and nothing written."""
    run = tmp_path / "run"
    words = ["--data", str(folders[5000]), "--out", str(run), "--contrast-every", "0", "--workers", "0", "--dry-run"]
    assert main(["pretrain", method, *words]) == 0
    assert not run.exists()
    text = capsys.readouterr().out
    assert "5,000 images" in text
    assert "measured just now" in text
    assert "report" not in text


@pytest.mark.parametrize("count", [2, 600, 5000])
def test_the_commands_of_the_readme(
    count: int, folders: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, photos = str(tmp_path / "run"), str(folders[count])
    labelled = tmp_path / "labelled"
    for number, path in enumerate(sorted(folders[50].iterdir())):
        (labelled / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        (labelled / f"class{number % 2}" / path.name).symlink_to(path)
    assert main(["pretrain", "jcl", "--data", photos, "--out", run, *BRIEF]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "evaluate recognise" in said.partition("report: ")[2]  # the command that answers
    assert main(["resume", run]) == 0
    assert main(["evaluate", "recognise", run, "--data", photos, "--workers", "0"]) == 0
    assert main(["evaluate", "knn", run, "--data", str(labelled), "--workers", "0"]) == 0
    features = tmp_path / "features.npz"
    assert main(["embed", run, "--data", photos, "--out", str(features), "--workers", "0"]) == 0
    assert np.load(features)["embeddings"].shape[0] == count
    assert main(["export", run, "--out", str(tmp_path / "encoder.safetensors")]) == 0
    assert safetensors.torch.load_file(tmp_path / "encoder.safetensors")
    assert main(["diagnose", run]) == 0
    assert main(["report", run]) == 0
    assert main(["views", "--data", photos, "--method", "jcl", "--out", str(tmp_path / "views.png")]) == 0
    capsys.readouterr()


def test_one_photograph_is_too_few(
    folders: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = tmp_path / "single"
    single.mkdir()
    (single / "one.jpeg").symlink_to(folders[2] / "00000.jpeg")
    message = mistake(capsys, "pretrain", "jcl", "--data", str(single), "--out", str(tmp_path / "run"))
    assert "at least two" in message
    assert not (tmp_path / "run").exists()


def test_a_time_fixes_the_steps(folders: dict[int, Path], tmp_path: Path) -> None:
    """They are recorded, so that the run is an ordinary one from then on."""
    run = tmp_path / "run"
    words = ["--data", str(folders[50]), "--out", str(run), "--workers", "0", "--time", "15s"]
    assert main(["pretrain", "moco-v2", *words]) == 0
    facts = json.loads((run / "config.json").read_text())
    assert facts["time"]["asked"] == "15s"
    assert facts["time"]["seconds_per_step"] > 0
    assert facts["config"]["optim"]["max_steps"] == len(lines(run)) >= 1
    again = ["--data", str(folders[50]), "--out", str(tmp_path / "again"), "--config", str(run / "config.json")]
    assert main(["pretrain", "moco-v2", *again, "--dry-run"]) == 0


@pytest.mark.parametrize(
    "more", [["--time", "soon"], ["--time", "10m", "--epochs", "3"], ["--time", "10m", "--max-steps", "3"]]
)
def test_a_time_that_makes_no_sense(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = str(tmp_path / "none"), str(tmp_path / "r")
    message, _ = mistakes(capsys, "pretrain", "jcl", "--data", data, "--out", out, *more)
    assert "--time" in message


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take only text for a name")
def test_folders_may_be_called_anything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What looks like markup or an emoji, and bytes that are no text; labelled by directories called likewise."""
    folder, run = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a[/b] :cat: \xff\xe9")), tmp_path / "run[/c]"
    for number in range(24):
        path = folder / ("[/d]", os.fsdecode(b"\xff"))[number % 2] / f"{number}\n\x1b[31m.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 255, (20, 20 + number % 2, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
    flags = ["--backbone", "tiny", "--image-size", "16", "--batch-size", "8", "--workers", "0"]
    assert main(["pretrain", "simclr", "--data", str(folder), "--out", str(run), *flags, "--max-steps", "2"]) == 0
    data = ["--data", str(folder), "--workers", "0"]
    assert main(["evaluate", "knn", str(run), "--no-baselines", *data]) == 0
    assert main(["embed", str(run), "--out", str(tmp_path / "f.npz"), *data]) == 0
    assert main(["report", str(run)]) == main(["diagnose", str(run)]) == 0
    out, err = capfd.readouterr()
    assert "a[/b] :cat: \\udcff" in out.replace("\n", "")
    assert "\x1b" not in out + err
    assert "Traceback" not in err
