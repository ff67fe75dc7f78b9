"""Whole runs on parquet files and on sets of the hub: the same after a death, and the same commit for good."""

import io
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hubserver import serving
from PIL import Image
from running import Command, lines

from manyview.cli import main
from manyview.config import Config, DataConfig, RunConfig
from manyview.run.flags import commits

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'manyview[parquet]'")
pq = pytest.importorskip("pyarrow.parquet")

FLAGS = ["--batch-size", "8", "--queue-size", "16", "--seed", "3", "--image-size", "16", "--contrast-every", "0"]


def rows(count: int, *, side: int, seed: int = 0, broken: int | None = None) -> bytes:
    """Photographs of several sizes, one of which may be broken."""
    noise = torch.Generator().manual_seed(seed)
    images = []
    for i in range(count):
        file, pixels = io.BytesIO(), torch.randint(0, 256, (side + i % 3, side, 3), generator=noise, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(file, "JPEG")
        images.append(file.getvalue() if i != broken else b"broken")
    result = io.BytesIO()
    table = pa.table({"image": pa.array(images), "label": [f"class{i % 2}" for i in range(count)]})
    pq.write_table(table, result, row_group_size=5)
    return result.getvalue()


def test_a_killed_run_on_parquet_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / f"set/data/train-{number:05d}-of-00002.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rows(20, side=100, seed=number, broken=None if number else 7))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    flags = ["--max-steps", "12", "--checkpoint-every", "1", "--keep", "30", "--workers", "2"]
    words = ["pretrain", "jcl", "--data", str(tmp_path / "set"), "--preset", "small", *FLAGS, *flags]
    assert main([*words, "--out", str(whole)]) == 0
    victim = Command(*words, "--out", str(killed), log=tmp_path / "log")
    victim.wait_until(lambda: (killed / "checkpoints/step-00000004.pt").exists())
    victim.send(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert not (killed / "encoder.safetensors").exists()
    assert main(["resume", str(killed)]) == 0
    assert (killed / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()
    assert [entry["loss"] for entry in lines(killed)] == [entry["loss"] for entry in lines(whole)]
    listed = (killed / "unreadable.txt").read_text()
    assert "data/train-00000-of-00002.parquet:7" in listed


def test_a_run_keeps_the_commit_that_it_was_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    with serving(tmp_path / "hub") as hub:
        first = hub.push("ada/flowers", {"train.parquet": rows(24, side=16), "test.parquet": rows(12, side=16)})
        other = hub.push("ada/leaves", {"train.parquet": rows(12, side=16)})
        flags = [*FLAGS, "--max-steps", "2", "--contrast-data", "hf:ada/leaves", "--contrast-every", "1"]
        assert main(["pretrain", "jcl", "--data", "hf:ada/flowers", "--out", str(run), *flags]) == 0
        facts = json.loads((run / "config.json").read_text())
        assert facts["config"]["data"]["data"] == facts["data"]["name"] == f"hf:ada/flowers@{first}"
        assert facts["config"]["run"]["contrast_data"] == f"hf:ada/leaves@{other}"
        hub.push("ada/flowers", {"train.parquet": rows(30, side=16), "test.parquet": rows(12, side=16)})
        (run / "checkpoints/step-00000002.pt").unlink()
        assert main(["resume", str(run)]) == 0
        assert main(["pretrain", "jcl", "--config", str(run / "config.json"), "--out", str(again)]) == 0
        assert (again / "encoder.safetensors").read_bytes() == (run / "encoder.safetensors").read_bytes()
        capsys.readouterr()
        assert main(["evaluate", "knn", str(run), "--data", f"hf:ada/flowers@{first}", "--workers", "0"]) == 0
        assert f"fitted on hf:ada/flowers@{first}" in " ".join(capsys.readouterr().out.split())
        (run / "report.html").unlink()  # of a finished run nothing is looked at
        assert main(["resume", str(run), "--data", "hf:ada/flowers"]) == 2
        assert f"--data hf:ada/flowers is not what {run} was trained on" in capsys.readouterr().err


def test_rank_0_alone_asks_which_commit_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = f"hf:ada/flowers@{'0' * 40}"
    monkeypatch.setattr("manyview.distributed.rank", lambda: 1)
    monkeypatch.setattr("manyview.distributed.everyone", lambda own: [*own, settled])
    config = Config(None, RunConfig(out=Path("out")), DataConfig(data="hf:ada/flowers"))
    assert commits(config) == ["--data", settled]
    assert commits(replace(config, data=DataConfig(data="scenes"))) == []
