"""`pack`: one file of many images."""

import json
from pathlib import Path

from running import SMALL_RUN

from manyview.cli import main


def test_a_packed_set_is_a_source(tmp_path: Path) -> None:
    packed = tmp_path / "scenes.safetensors"
    assert main(["pack", "--data", "scenes:64", "--out", str(packed)]) == 0
    out = tmp_path / "run"
    assert main(["pretrain", "simclr", "--data", str(packed), "--out", str(out), *SMALL_RUN]) == 0
    assert json.loads((out / "config.json").read_text())["data"]["samples"] == 64
