"""`report` on a small run."""

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
