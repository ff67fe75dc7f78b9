"""Features of a whole set in a file: the same whatever happens on the way."""

import io
import os
import signal
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from running import TwoRanks
from test_evaluate_features import MEAN, STD, Flat, Memory, Mixed, pixels
from torch import Tensor

from manyview.cli import main
from manyview.data import open_source
from manyview.data.source import Subset
from manyview.encoders import Card, EncoderConfig, FrozenEncoder, build_encoder, save_backbone
from manyview.errors import UserError
from manyview.evaluate.embed import embed

torch.set_num_threads(1)


class Stopping(Flat):
    """Counts its batches, and dies after some."""

    def __init__(self, size: int, after: int = sys.maxsize) -> None:
        super().__init__(size)
        self.batches, self.after = 0, after

    def forward(self, x: Tensor) -> Tensor:
        if self.batches == self.after:
            raise KeyboardInterrupt
        self.batches += 1
        return super().forward(x)


def encoder_of(backbone: Flat) -> FrozenEncoder:
    return FrozenEncoder(backbone, Card("tiny", "standard", "batch", 8, MEAN, STD))


@pytest.mark.skipif("MANYVIEW_TEST_DATA" not in os.environ, reason="MANYVIEW_TEST_DATA is not set")
def test_photographs_of_all_sizes_are_embedded(tmp_path: Path) -> None:
    photographs = open_source(os.path.join(os.environ["MANYVIEW_TEST_DATA"], "coco-mini", "train2017"), labelled=False)
    some = Subset(photographs, torch.arange(12))
    written = embed(pixels(64), some, tmp_path / "features.npz", batch_size=5, workers=2)
    assert written.preprocess == "shorter side resized to 73, centre crop 64×64 (64×64 as stored)"
    with np.load(tmp_path / "features.npz", allow_pickle=False) as file:
        assert file["embeddings"].shape == (12, 3 * 64 * 64)
        assert file["embeddings"].std(1).min() > 0.05  # pictures, not blanks
        assert file["ids"][0].endswith(".jpg")


def test_embed_writes_plain_arrays(tmp_path: Path) -> None:
    source = Mixed([(8, 8)] * 5, broken={1})
    out = tmp_path / "new" / "features.npz"
    embed(pixels(8), source, out)
    with np.load(out, allow_pickle=False) as file:
        assert set(file.files) == {"ids", "embeddings", "labels", "classes"}
        assert file["ids"].tolist() == ["cat/0.png", "cat/2.png", "dög/3.png", "cat/4.png"]
        assert file["labels"].tolist() == [0, 0, 1, 0]
        assert file["classes"].tolist() == ["cat", "dög"]
        np.testing.assert_allclose(file["embeddings"][1], source.images[2].flatten() / 255, rtol=1e-6)
    assert [path.name for path in out.parent.iterdir()] == ["features.npz"]


def test_embed_without_labels_has_no_label_arrays(tmp_path: Path) -> None:
    embed(pixels(8), Memory(4), tmp_path / "features.npz")
    with np.load(tmp_path / "features.npz", allow_pickle=False) as file:
        assert set(file.files) == {"ids", "embeddings"}
        assert file["embeddings"].shape == (4, 192)


def test_embed_writes_what_numpy_would(tmp_path: Path) -> None:
    source = Memory(70, classes=3)
    embed(pixels(8), source, tmp_path / "features.npz", batch_size=4)
    with np.load(tmp_path / "features.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
        np.testing.assert_allclose(arrays["embeddings"], source.images.flatten(1) / 255, rtol=1e-6)
    theirs = io.BytesIO()
    np.savez(theirs, **arrays)
    with zipfile.ZipFile(theirs) as expected, zipfile.ZipFile(tmp_path / "features.npz") as ours:
        assert {name: ours.read(name) for name in ours.namelist()} == {
            name: expected.read(name) for name in expected.namelist()
        }


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_an_interrupted_embed_goes_on_and_changes_no_byte(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    source = Mixed([(8, 8)] * 200, broken={1, 130})  # 50 batches: 16, 16, 16, 2
    whole, stopped = tmp_path / f"whole.{ending}", tmp_path / f"stopped.{ending}"
    parts = tmp_path / f"stopped.{ending}.parts"
    assert len(embed(pixels(8), source, whole, batch_size=4)) == 198
    with pytest.raises(KeyboardInterrupt):
        embed(encoder_of(Stopping(8, after=40)), source, stopped, batch_size=4)
    assert not stopped.exists()
    assert sorted(path.name for path in parts.iterdir()) == [
        "manifest.json",
        "part-00000.safetensors",
        "part-00001.safetensors",
    ]
    rest = Stopping(8)
    written = embed(encoder_of(rest), source, stopped, batch_size=4)
    assert rest.batches == 18
    assert (len(written), written.unreadable) == (198, (1, 130))
    assert f"{parts}: 2 of 4 parts are there" in capsys.readouterr().err
    assert stopped.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [stopped.name, whole.name]


def test_parts_of_something_else_are_not_mixed_in(tmp_path: Path) -> None:
    out = tmp_path / "features.npz"
    with pytest.raises(KeyboardInterrupt):
        embed(encoder_of(Stopping(8, after=18)), Memory(80), out, batch_size=4)
    brighter = Flat(8)
    brighter.scale.data.fill_(2.0)
    other = encoder_of(brighter)
    for words, encoder, source, size in (
        ("encoder", other, Memory(80), 4),
        ("data", pixels(8), Memory(80, seed=1), 4),
        ("--images-per-pass", pixels(8), Memory(80), 5),
    ):
        with pytest.raises(UserError, match=rf"made with other {words}: remove .*\.parts to begin anew") as caught:
            embed(encoder, source, out, batch_size=size)
        assert "\n" not in str(caught.value)
    assert not out.exists()
    assert len(embed(pixels(8), Memory(80), out, batch_size=4)) == 80


@pytest.mark.parametrize("manifest", [None, "", "[]", "{}", "[" * 100_000])
def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path, manifest: str | None) -> None:
    out, folder = tmp_path / "features.npz", tmp_path / "features.npz.parts"
    folder.mkdir()
    (folder / "holiday.jpg").touch()
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    with pytest.raises(UserError, match=r"features\.npz\.parts (is not what|holds features made with other)"):
        embed(pixels(8), Memory(4), out)
    assert (folder / "holiday.jpg").exists()


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    out = tmp_path / "features.npz"
    with pytest.raises(KeyboardInterrupt):
        embed(encoder_of(Stopping(8, after=18)), Memory(80), out, batch_size=4)
    (tmp_path / "features.npz.parts" / "part-00000.safetensors").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(UserError, match=r"part-00000.safetensors cannot be read .*: remove it"):
        embed(pixels(8), Memory(80), out, batch_size=4)


def test_embed_that_fails_leaves_the_old_file_and_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "features.npz"
    embed(pixels(8), Memory(4), out)
    before = out.read_bytes()

    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("manyview.evaluate.embed.np.lib.format.write_array", full_disk)
        with pytest.raises(UserError, match=r"--out .* cannot be written \(no space left on device\): make room"):
            embed(pixels(8), Memory(5), out)
    assert out.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"features.npz", "features.npz.parts"}
    again = Stopping(8)
    assert len(embed(encoder_of(again), Memory(5), out)) == 5
    assert again.batches == 0


def test_an_output_that_cannot_be_is_refused_before_any_image_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    never = encoder_of(Stopping(8, after=0))
    with pytest.raises(UserError, match=r"--out .* is a directory: name a file"):
        embed(never, Memory(4), tmp_path)
    with pytest.raises(UserError, match=r"--out .*file/features.npz cannot be written"):
        embed(never, Memory(4), tmp_path / "file" / "features.npz")
    with pytest.raises(UserError, match=r"csv ends neither in \.npz nor in \.parquet: let it, or say --format"):
        embed(never, Memory(4), tmp_path / "features.csv")
    embed(pixels(8), Memory(4), tmp_path / "features", "npz")
    assert np.load(tmp_path / "features")["embeddings"].shape[0] == 4


def test_a_set_without_a_readable_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not one of the 3 images of mixed can be read"):
        embed(pixels(8), Mixed([(8, 8)] * 3, broken={0, 1, 2}), tmp_path / "features.npz")


@pytest.mark.parametrize("labelled", [True, False])
def test_a_table_holds_what_the_arrays_do(tmp_path: Path, labelled: bool) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    source = Memory(70, classes=3 if labelled else 0)
    embed(pixels(8), source, tmp_path / "features.parquet", batch_size=4)
    embed(pixels(8), source, tmp_path / "table", "parquet", batch_size=4)
    assert (tmp_path / "table").read_bytes() == (tmp_path / "features.parquet").read_bytes()
    table = pyarrow.parquet.read_table(tmp_path / "features.parquet")
    assert table.column_names == ["id", "embedding", *(["label", "class"] if labelled else [])]
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32(), 192)
    assert table["id"].to_pylist() == [str(number) for number in range(70)]
    np.testing.assert_allclose(np.stack(table["embedding"].to_pylist()), source.images.flatten(1) / 255, rtol=1e-6)
    if labelled:
        assert source.labels is not None
        assert table["label"].to_pylist() == source.labels.tolist()
        assert table["class"].to_pylist() == [source.classes[label] for label in source.labels.tolist()]


def test_a_table_without_its_library_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"--format parquet needs pyarrow: pip install 'manyview\[parquet\]'"):
        embed(encoder_of(Stopping(8, after=0)), Memory(4), tmp_path / "features.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder file."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("encoder") / "encoder.safetensors"
    save_backbone(path, build_encoder(EncoderConfig(backbone="tiny")), image_size=32, mean=MEAN, std=STD)
    return path


def words(encoder: Path, out: Path) -> list[str]:
    return ["embed", str(encoder), "--data", "scenes:1024", "--batch-size", "4", "--out", str(out), "--device", "cpu"]


@pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")
def test_two_ranks_one_of_them_killed_write_what_one_process_does(small: Path, tmp_path: Path) -> None:
    whole, killed, log = tmp_path / "whole.npz", tmp_path / "killed.npz", tmp_path / "log"
    assert main(words(small, whole)) == 0
    run = TwoRanks(*words(small, killed), log=log, restarts=1)
    parts = tmp_path / "killed.npz.parts"
    run.wait_until((parts / "part-00003.safetensors").exists)  # the second part of rank 1
    os.kill(run.pid_of(1), signal.SIGKILL)
    assert run.wait() == 0, log.read_text()
    assert "parts are there, the others follow" in log.read_text()
    assert log.read_text().count("1,024 embeddings") == 1
    assert killed.read_bytes() == whole.read_bytes()
    assert not parts.exists()
