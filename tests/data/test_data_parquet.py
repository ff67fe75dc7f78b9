"""Images in the rows of parquet files: the columns, labels and splits, and files that are damaged."""

import io
import json
import multiprocessing
import pickle
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from manyview.data import Folder, Loader, NoTestSplit, Packed, Parquet, Source, Unreadable, open_source
from manyview.data import parquet as parquet_module
from manyview.errors import UserError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'manyview[parquet]'")
pq = pytest.importorskip("pyarrow.parquet")

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
NAMES = ["ant", "bee", "cat"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def encoded(value: int, size: tuple[int, int] = (100, 8), mode: str = "RGB", kind: str = "PNG", **how: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (value, 0, 0)).convert(mode).save(file, kind, **how)
    return file.getvalue()


def many(count: int, start: int = 0) -> list[bytes | None]:
    return [encoded(start + i) for i in range(count)]


def as_the_hub_does(images: Sequence[bytes | None]) -> Any:
    return pa.array([{"bytes": data, "path": f"{i}.png"} for i, data in enumerate(images)], IMAGE)


def write(path: Path, columns: dict[str, Any], features: dict[str, Any] | None = None, **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, **{"row_group_size": 4} | how)
    return path


def labelled(path: Path, count: int, start: int = 0, names: list[str] = NAMES, labels: Any = None) -> Path:
    """As `push_to_hub` writes it."""
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
    labels = [i % 3 for i in range(count)] if labels is None else labels
    columns = {"image": as_the_hub_does(many(count, start)), "label": pa.array(labels, pa.int64())}
    return write(path, columns, features)


def hub_set(root: Path) -> Path:
    for number in range(3):
        labelled(root / f"data/train-{number:05d}-of-00003.parquet", 10, start=10 * number)
    labelled(root / "data/test-00000-of-00001.parquet", 6, start=100)
    labelled(root / "data/validation-00000-of-00001.parquet", 5, start=200)
    return root


def reds(source: Source) -> list[int]:
    return [int(source.read(i)["image"][0, 0, 0]) for i in range(len(source))]


def one(tmp_path: Path, columns: dict[str, Any], features: dict[str, Any] | None = None, **how: Any) -> Source:
    return open_source(str(write(tmp_path / "one.parquet", columns, features)), **how)


def test_a_set_of_the_hub_has_its_splits_labels_and_names(tmp_path: Path) -> None:
    root = hub_set(tmp_path / "set")
    train, test, pretrain = (open_source(str(root), split=split) for split in ("train", "test", "pretrain"))
    assert isinstance(train, Parquet)
    assert (train.name, train.classes, len(train), len(test)) == (f"{root}/", tuple(NAMES), 30, 6)
    assert (reds(train), reds(test)) == (list(range(30)), list(range(100, 106)))
    assert train.labels is not None
    assert train.labels.tolist() == [i % 3 for i in range(10)] * 3
    assert (train.id(0), train.id(29)) == (
        "data/train-00000-of-00003.parquet:0",
        "data/train-00002-of-00003.parquet:9",
    )
    assert pretrain.fingerprint == train.fingerprint != test.fingerprint
    unlabelled = open_source(str(root), labelled=False)
    assert (unlabelled.labels, unlabelled.classes) == (None, ())


def test_samples_are_those_of_a_folder_of_the_same_files(tmp_path: Path) -> None:
    rotated = Image.Exif()
    rotated[0x0112] = 6
    modes = [encoded(40 * i, (9 + i, 7), mode) for i, mode in enumerate(("RGB", "RGBA", "L", "P", "1", "I;16"))]
    files = [*modes, encoded(9, (30, 20), kind="JPEG", exif=rotated), encoded(8, (3, 200), kind="GIF")]
    (tmp_path / "loose").mkdir()
    for i, data in enumerate(files):
        (tmp_path / f"loose/{i}.png").write_bytes(data)
    source, folder = one(tmp_path, {"image": as_the_hub_does(files)}), Folder(tmp_path / "loose")
    for i in range(len(files)):
        assert torch.equal(source.read(i)["image"], folder.read(i)["image"])
    assert source.median_side == folder.median_side


@pytest.mark.parametrize("how", [{"compression": "NONE"}, {"compression": "ZSTD"}, {"use_dictionary": False}])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), IMAGE])
def test_images_are_recognised_by_their_bytes(tmp_path: Path, kind: Any, how: dict[str, Any]) -> None:
    images = many(9)
    column = as_the_hub_does(images) if kind == IMAGE else pa.array(images, kind)
    sound = pa.array([b"RIFF" + bytes(20)] * 9)
    path = write(tmp_path / "one.parquet", {"sound": sound, "picture": column, "n": pa.array(range(9))}, **how)
    assert reds(open_source(str(path))) == list(range(9))


def test_of_several_columns_of_images_one_is_chosen_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"mask": as_the_hub_does(many(3, 90)), "image": as_the_hub_does(many(3))}
    assert reds(one(tmp_path, columns)) == [0, 1, 2]
    assert "has images in the columns image and mask: those of image are taken" in capsys.readouterr().err


def test_a_file_without_images_lists_its_columns(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"one.parquet' has no column of images, only x \(int64\), y \(binary\): one"):
        one(tmp_path, {"x": pa.array([1, 2]), "y": pa.array([b"no", b"image"])})
    with pytest.raises(UserError, match=r"one.parquet' holds no images, only their paths"):
        one(tmp_path, {"image": as_the_hub_does([None, None])}, {"image": {"_type": "Image"}})
    with pytest.raises(UserError, match="holds no images: its parquet files have no rows"):
        one(tmp_path, {"image": as_the_hub_does([])})


@pytest.mark.parametrize(
    ("values", "classes", "numbers"),
    [
        (pa.array(["b", "a", "b"]), ("a", "b"), [1, 0, 1]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), [1, 0, 1]),
        (pa.array([10, 9, -3], pa.int8()), ("-3", "9", "10"), [2, 1, 0]),
        (pa.array([True, False, True]), ("False", "True"), [1, 0, 1]),
    ],
)
def test_labels_are_numbers_or_names(tmp_path: Path, values: Any, classes: tuple[str, ...], numbers: list[int]) -> None:
    source = one(tmp_path, {"image": as_the_hub_does(many(3)), "label": values})
    assert source.labels is not None
    assert (source.classes, source.labels.tolist()) == (classes, numbers)


def test_of_several_labels_one_is_chosen_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coarse = {"_type": "ClassLabel", "names": ["animal", "plant"]}
    columns = {
        "image": as_the_hub_does(many(3)),
        "coarse_label": pa.array([0, 1, 1]),
        "fine_label": pa.array([4, 5, 4]),
    }
    fine = {"_type": "ClassLabel", "names": [*"abcdef"]}
    source = one(tmp_path, columns, {"coarse_label": coarse, "fine_label": fine})
    assert source.classes == (*"abcdef",)
    line = capsys.readouterr().err
    assert "has labels in the columns fine_label and coarse_label: those of fine_label are taken" in line
    assert one(tmp_path, columns, {"coarse_label": coarse}).classes == ("animal", "plant")


def test_secret_or_missing_labels_make_a_set_unlabelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for labels in ([0, -1, 1], [0, None, 1]):
        assert open_source(str(labelled(tmp_path / "one.parquet", 3, labels=labels))).labels is None
    assert "counts as unlabelled: 1 of its 3 rows have no label" in capsys.readouterr().err


def test_a_test_split_with_secret_labels_leaves_the_tests_to_validation(tmp_path: Path) -> None:
    root = hub_set(tmp_path / "set")
    labelled(root / "data/test-00000-of-00001.parquet", 6, labels=[-1] * 6)
    assert reds(open_source(str(root), split="test")) == list(range(200, 205))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0.5, 1.5, 2.5]), "double"),
        (pa.array([[1], [2, 3], []]), "list<"),
        (pa.array([b"a", b"b", b"c"]), "binary"),
    ],
)
def test_labels_of_another_type_are_refused(tmp_path: Path, column: Any, kind: str) -> None:
    columns = {"image": as_the_hub_does(many(3)), "label": column}
    with pytest.raises(UserError, match=f"the labels of '.*' cannot be used: its column label is {kind}.*--unlabelled"):
        one(tmp_path, columns)
    assert len(one(tmp_path, columns, labelled=False)) == 3


def test_labels_beyond_their_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its column label holds 3, which is none of its 3 classes; use --unlabelled"):
        open_source(str(labelled(tmp_path / "one.parquet", 3, labels=[0, 3, 1])))


def test_captions_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {
        "image": as_the_hub_does(many(2)),
        "text": pa.array(["a b", "c"]),
        "n": pa.array([1, 2]),
        "label": pa.array([0, 1]),
    }
    one(tmp_path, columns)
    one(tmp_path, columns)
    assert capsys.readouterr().err.count("has captions (text), which are not trained on yet\n") == 1


def test_broken_images_are_unreadable_and_the_others_are_read(tmp_path: Path) -> None:
    images = many(60)
    images[3], images[7], images[50] = b"broken", None, encoded(5)[:60]
    source = one(tmp_path, {"image": as_the_hub_does(images)})
    assert [id_ for id_, _ in source.unreadable] == ["one.parquet:3", "one.parquet:7"]  # as far as headers tell
    for index, reason in ((3, "not an image"), (7, "its row holds no image"), (50, "truncated|broken")):
        with pytest.raises(Unreadable, match=reason):
            source.read(index)
    with pytest.raises(UserError, match=r"3 of 30 images of '.*' cannot be read.*the first is one.parquet:0"):
        one(tmp_path, {"image": as_the_hub_does([b"x", b"y", b"z", *many(27)])}, {"image": {"_type": "Image"}})


def test_small_images_of_one_size_are_packed(tmp_path: Path) -> None:
    root = tmp_path / "set"
    write(root / "train.parquet", {"image": as_the_hub_does([encoded(i, (8, 8)) for i in range(20)])})
    source = open_source(str(root))
    assert isinstance(source, Packed)
    assert source.id(7) == "train.parquet:7"


def test_images_are_copied_once_and_again_when_the_file_changes(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = hub_set(tmp_path / "set")
    first = open_source(str(root))
    line = capsys.readouterr().err
    assert line.startswith(f"copied 30 images of '{root}/' into {cache / 'parquet'} (")
    labelled(root / "data/train-00001-of-00003.parquet", 12, start=60)
    second = open_source(str(root))
    assert "copied 12 images of" in capsys.readouterr().err
    assert reds(second) == [*range(10), *range(60, 72), *range(20, 30)]
    assert reds(first) == list(range(30))  # who has opened them reads on
    assert len(list((cache / "parquet").glob("*.images"))) == 3
    parquet_module._mapped.cache_clear()  # as in a process that comes later
    with pytest.raises(Unreadable, match=r"has changed since it was opened: start again"):
        first.read(10)
    capsys.readouterr()
    open_source(str(root))
    assert capsys.readouterr().err == ""


def test_two_commands_that_open_a_new_set_at_once_share_its_copies(tmp_path: Path) -> None:
    path = labelled(tmp_path / "one.parquet", 30)
    start, sources = threading.Barrier(2), []

    def command() -> None:
        start.wait()
        sources.append(open_source(str(path)))

    commands = [threading.Thread(target=command) for _ in range(2)]
    for each in commands:
        each.start()
    for each in commands:
        each.join()
    parquet_module._mapped.cache_clear()
    assert [reds(source) for source in sources] == [list(range(30))] * 2


def test_several_files_are_copied_by_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "_PARALLEL_BYTES", 0)
    root = hub_set(tmp_path / "set")
    assert reds(open_source(str(root))) == list(range(30))
    data = (root / "data/train-00001-of-00003.parquet").read_bytes()
    (root / "data/train-00001-of-00003.parquet").write_bytes(data[:200] + bytes(400) + data[600:])
    with pytest.raises(UserError, match=r"train-00001-of-00003.parquet' is not a whole parquet file \(.*\): make or"):
        open_source(str(root), labelled=False)


def test_a_damaged_copy_is_made_again(tmp_path: Path, cache: Path) -> None:
    path = str(labelled(tmp_path / "one.parquet", 10))
    assert reds(open_source(path)) == list(range(10))
    (copy,) = (cache / "parquet").glob("*.images")
    whole = copy.read_bytes()
    for damaged in (b"", whole[:-1], whole[1:], whole[:-8] + b"\xff" * 8, whole[:-90] + b"\0" + whole[-89:]):
        copy.write_bytes(damaged)
        assert reds(open_source(path)) == list(range(10))
        assert copy.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\): set MANYVIEW_CACHE to a directory"):
        open_source(str(labelled(tmp_path / "one.parquet", 3)))


def test_a_disk_without_room_is_told_before_the_copy_is_begun(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = labelled(tmp_path / "one.parquet", 3)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=path.stat().st_size - 1))
    with pytest.raises(UserError, match=r"parquet' has 0.0 GiB left for a copy .*: set MANYVIEW_CACHE to a directory"):
        open_source(str(path))
    assert not cache.exists()


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from manyview.data.columns import pyarrow

    path = labelled(tmp_path / "one.parquet", 3)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    pyarrow.cache_clear()
    with pytest.raises(UserError, match=r"pip install 'manyview\[parquet\]'"):
        open_source(str(path))


def test_files_of_two_sets_are_not_mixed(tmp_path: Path) -> None:
    labelled(tmp_path / "a.parquet", 3)
    labelled(tmp_path / "b.parquet", 3, names=["dog", *NAMES[1:]])
    with pytest.raises(UserError, match=r"a.parquet' and '.*b.parquet' are not of one set: the names of their classes"):
        open_source(f"{tmp_path}/*.parquet")
    write(tmp_path / "b.parquet", {"picture": as_the_hub_does(many(3))})
    with pytest.raises(UserError, match=r"not of one set: their column image is struct<.*> and missing"):
        open_source(f"{tmp_path}/*.parquet")


def test_patterns_and_single_files_name_what_they_say(tmp_path: Path) -> None:
    root = hub_set(tmp_path / "set")
    assert reds(open_source(f"{root}/data/train-*.parquet")) == list(range(30))
    assert reds(open_source(f"{root}/data/train-{{00000..00001}}-of-00003.parquet")) == list(range(20))
    validation = open_source(f"{root}/data/validation-00000-of-00001.parquet")
    assert (reds(validation), validation.id(1)) == (list(range(200, 205)), "validation-00000-of-00001.parquet:1")
    assert reds(open_source(f"{root}/data/*.parquet", split="test")) == list(range(100, 106))
    for spec in (f"{root}/data/train-*.parquet", f"{root}/data/test-00000-of-00001.parquet"):
        with pytest.raises(NoTestSplit, match="has no test split: name other images with --test-data"):
            open_source(spec, split="test")
    with pytest.raises(UserError, match=r"matches no file: .* written as 'a-\*.parquet'"):
        open_source(f"{root}/data/none-*.parquet")


def test_splits_may_be_directories(tmp_path: Path) -> None:
    for split, start in (("train", 0), ("val", 50)):
        labelled(tmp_path / f"set/{split}/0000.parquet", 3, start=start)
    root = str(tmp_path / "set")
    assert [reds(open_source(root, split=split)) for split in ("train", "test")] == [[0, 1, 2], [50, 51, 52]]
    assert open_source(root).id(2) == "train/0000.parquet:2"


def test_without_files_for_training_a_set_is_refused(tmp_path: Path) -> None:
    root = hub_set(tmp_path / "set")
    for path in root.glob("data/train-*"):
        path.unlink()
    with pytest.raises(UserError, match="has files for test and validation and none for training: name the ones"):
        open_source(str(root))


def test_incomplete_sets_and_files_of_no_split_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = hub_set(tmp_path / "set")
    labelled(root / "data/extra-00000-of-00001.parquet", 3)
    assert len(open_source(str(root))) == 30
    assert "1 of the 6 files of" in (line := capsys.readouterr().err)
    assert "of no known split and are passed over, the first is data/extra-00000-of-00001.parquet" in line
    (root / "data/train-00001-of-00003.parquet").unlink()
    with pytest.raises(UserError, match="lacks 1 of the 3 files of data/train, the first is data/train-00001-of-00003"):
        open_source(str(root))


def test_loose_images_keep_the_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "set/metadata.parquet", {"file_name": pa.array(["a/0.png"])})
    (tmp_path / "set/a").mkdir()
    (tmp_path / "set/a/0.png").write_bytes(encoded(1))
    assert isinstance(open_source(str(tmp_path / "set")), Folder)
    assert (
        "is read as one of images or tars (a/0.png), not of parquet files (metadata.parquet)" in capsys.readouterr().err
    )


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_processes_read_the_same(tmp_path: Path, start: str) -> None:
    source = open_source(str(hub_set(tmp_path / "set")))
    with multiprocessing.get_context(start).Pool(1) as pool:
        assert pool.apply(reds, (source,)) == list(range(30))
    assert len(pickle.dumps(source)) < 20_000


def corner(fields: Mapping[str, Tensor], number: int, epoch: int) -> dict[str, Tensor]:
    return {"image": fields["image"][None, :, :8, :8]}


def test_batches_are_those_of_one_process_whoever_reads(tmp_path: Path) -> None:
    source = open_source(str(hub_set(tmp_path / "set")))
    alone, apart = (
        [batch.fields["image"] for batch in Loader(source, batch_size=8, seed=3, stop=6, workers=workers, crop=corner)]
        for workers in (0, 2)
    )
    assert len(alone) == 6
    assert all(torch.equal(*pair) for pair in zip(alone, apart, strict=True))


def test_damaged_files_are_user_errors_or_valid_data(tmp_path: Path) -> None:
    """Bytes changed, cut away and repeated, anywhere and in the footer, where everything is told."""
    whole = labelled(tmp_path / "whole.parquet", 12).read_bytes()
    random, outcomes = np.random.default_rng(0), {"error": 0, "data": 0, "empty": 0}
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for number in range(400):
        data = bytearray(whole)
        kind = number % 4
        if kind < 2:
            for place in random.integers(0 if kind else footer, len(whole), 1 + number % 5):
                data[place] = random.integers(256)
        elif kind == 2:
            del data[random.integers(len(whole)) :]
        else:
            start, stop = sorted(random.integers(0, len(whole), 2))
            data[start:start] = data[start:stop]
        path = tmp_path / f"damaged/{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        try:
            read = [readable(source, index) for source in [open_source(str(path))] for index in range(len(source))]
            outcomes["data" if read else "empty"] += 1
        except UserError:
            outcomes["error"] += 1
    assert outcomes["data"] > 20
    assert outcomes["error"] > 200
    assert sum(outcomes.values()) == 400


def readable(source: Source, index: int) -> bool:
    try:
        return source.read(index)["image"].dtype == torch.uint8
    except Unreadable:
        return False
