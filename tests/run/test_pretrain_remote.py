"""Runs on shards that a server holds and the cache cannot."""

import io
import json
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from running import Command, mistake
from serving import Server, serving

from manyview.cli import main
from manyview.data import transfer

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

FLAGS = ["--batch-size", "8", "--queue-size", "16", "--keys", "1", "--image-size", "16", "--backbone", "tiny"]
FLAGS += ["--max-steps", "18", "--checkpoint-every", "3", "--contrast-every", "0", "--workers", "2"]
SET = "a-{0..5}.tar"


def shard(path: Path, number: int) -> None:
    with tarfile.open(path, "w") as tar:
        for i in range(16):
            noise = np.random.default_rng(16 * number + i).integers(0, 256, (70, 70 + i % 2, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(noise).save(file, "PNG")
            info = tarfile.TarInfo(f"{i}.png")
            info.size = file.tell()
            file.seek(0)
            tar.addfile(info, file)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    root = tmp_path / "served"
    root.mkdir()
    for number in range(6):
        shard(root / f"a-{number}.tar", number)
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MANYVIEW_CACHE_SIZE", f"{4.5 * (root / 'a-0.tar').stat().st_size / 1e3:.3f}KB")
    with serving(root) as running:
        yield running


def forget(cache: Path) -> None:
    for path in (cache / "shards").glob("*.tar"):
        path.unlink()


def test_a_killed_run_resumes_to_the_same_bytes(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server is slow, and connections are cut."""
    monkeypatch.setattr(transfer, "PAUSE", 0.001)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    words = ["pretrain", "jcl", "--data", f"{server.url}/{SET}", *FLAGS]
    assert main([*words, "--out", str(whole)]) == 0
    assert "shuffled within 2 of 6 shards at a time" in " ".join(capsys.readouterr().out.split())
    forget(tmp_path / "cache")
    server.slow, server.cut, server.cuts = 0.03, 30_000, 1
    victim = Command(*words, "--out", str(killed), log=tmp_path / "log")
    victim.wait_until(lambda: (killed / "checkpoints/step-00000006.pt").exists())
    victim.send(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    forget(tmp_path / "cache")
    server.cuts += 2
    assert main(["resume", str(killed)]) == 0
    assert server.cuts == 0
    assert [part for _, _, part in server.requests if part] == ["bytes=30000-"] * 3
    assert (killed / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()
    assert (tmp_path / "cache/shards").is_dir()


def test_a_run_goes_on_only_with_its_shards_in_its_order(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, url = tmp_path / "run", f"{server.url}/{SET}"
    assert main(["pretrain", "jcl", "--data", url, *FLAGS, "--max-steps", "2", "--out", str(run)]) == 0
    assert json.loads((run / "config.json").read_text())["data"]["order"] == "shuffled within 2 of 6 shards at a time"
    capsys.readouterr()
    (run / "report.html").unlink()  # it is not finished
    with monkeypatch.context() as patch:
        patch.setenv("MANYVIEW_CACHE_SIZE", "1GB")
        message = mistake(capsys, "resume", str(run))
        assert "would now take them shuffled as a whole: name the original data, with MANYVIEW_CACHE" in message
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    shard(server.root / "a-3.tar", 9)
    assert main(["resume", str(run)]) == 2
    told, error = capsys.readouterr().err.splitlines()
    assert told.startswith("fetching 1 of the 6 shards of")
    assert "is not what" in error
    (server.root / "a-3.tar").unlink()
    forget(tmp_path / "cache")
    assert "/a-3.tar' cannot be read: Not Found (HTTP 404): check the address" in mistake(capsys, "resume", str(run))
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before
    shard(server.root / "a-3.tar", 3)
    assert main(["resume", str(run)]) == 0


def test_evaluating_goes_through_the_shards_in_order(server: Server, tmp_path: Path) -> None:
    run, url = tmp_path / "run", f"{server.url}/{SET}"
    assert main(["pretrain", "jcl", "--data", url, *FLAGS, "--max-steps", "1", "--out", str(run)]) == 0
    forget(tmp_path / "cache")
    server.requests.clear()
    assert main(["embed", str(run), "--data", url, "--out", str(tmp_path / "a.npz"), "--workers", "2"]) == 0
    fetched = server.fetched()
    assert 0 < len(fetched) == len(set(fetched)), "none twice"
    assert len(np.load(tmp_path / "a.npz")["ids"]) == 96
