"""`report` on a small run."""

import shutil
from pathlib import Path

import pytest
from running import SMALL_RUN, mistake

from manyview.cli import main


def test_the_report_sets_another_encoder_beside_the_run(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    flags = [*SMALL_RUN[:2], "--max-steps", "1", "--contrast-every", "0", "--image-size", "24"]
    assert main(["pretrain", "simclr", "--data", "scenes:64", "--out", str(other), *flags]) == 0
    assert main(["report", str(run), "--against", str(other)]) == 0
    page = (run / "report.html").read_text()
    assert f"simclr on scenes ({other})" in page
    assert "They agree on" in page
    assert main(["report", str(run)]) == 0
    assert "They agree on" not in (run / "report.html").read_text()


def test_another_encoder_that_is_not_there_costs_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "report.html").read_bytes()
    assert "--against: " in mistake(capsys, "report", str(run), "--against", str(run / "none"))
    assert (run / "report.html").read_bytes() == before


def test_the_report_is_written_anew(run: Path) -> None:
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert "moco-v2" in (run / "report.html").read_text()


def test_a_run_that_is_not_finished_has_its_pictures_and_results(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are those of its newest checkpoint, which is said once for each command."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for name in ("encoder.safetensors", "report.html"):
        (copy / name).unlink()
    remark = f"{copy} is not finished: its encoder is that of the checkpoint after step 2"
    capsys.readouterr()
    assert main(["evaluate", "knn", str(copy), "--data", "scenes:64"]) == 0
    assert capsys.readouterr().err.count(remark) == 1
    assert main(["report", str(copy), "--against", str(run)]) == 0
    assert capsys.readouterr().err.count(remark) == 1
    page = (copy / "report.html").read_text()
    assert "This run is not finished" in page
    assert "Not shown" not in page
    assert "Each row is one image of scenes" in page
    assert "They agree on 100.0" in page  # the checkpoint after the last step is the encoder
    assert "Better than random weights?" in page
    shutil.rmtree(copy / "checkpoints")
    assert main(["report", str(copy)]) == 0
    page = (copy / "report.html").read_text()
    assert "Each row is one image of scenes" in page  # views need no encoder
    assert page.count("Not shown: no encoder has been saved yet.") == 2
    assert "holds no encoder.safetensors and no checkpoint" in mistake(
        capsys, "report", str(copy), "--against", str(run)
    )
