"""Many tars as one numbered set."""

import io
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from manyview.data import Batch, Folder, Loader, Packed, Shards, Source, Unreadable, open_source
from manyview.data import tar as tar_module
from manyview.data.patterns import tars_in
from manyview.errors import UserError

Members = Sequence[tuple[str, bytes]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def png(colour: int, side: int = 6) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, 5), (colour, 0, 255 - colour)).save(file, "PNG")
    return file.getvalue()


def write(root: Path, shards: Mapping[str, Members]) -> Path:
    root.mkdir(exist_ok=True)
    for shard, members in shards.items():
        with tarfile.open(root / shard, "w") as tar:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return root


def opened(root: Path, **options: Any) -> Shards:
    return Shards(f"{root.name}/", tars_in(root), **options)


def ids(source: Source) -> list[str]:
    return [source.id(i) for i in range(len(source))]


def images(source: Source) -> list[Tensor]:
    return [source.read(i)["image"] for i in range(len(source))]


def numbered(count: int = 24, per_shard: int = 5) -> dict[str, list[tuple[str, bytes]]]:
    """Image i has colour i and, with its label i % 3 + 7 and a caption, key i."""
    shards: dict[str, list[tuple[str, bytes]]] = {}
    for i in range(count):
        members = shards.setdefault(f"train-{i // per_shard:06d}.tar", [])
        members += [(f"{i:04d}.png", png(i, 6 + i % 2)), (f"{i:04d}.cls", b"%d" % (i % 3 + 7)), (f"{i:04d}.txt", b"")]
    return shards


def test_shards_equal_a_folder_of_the_same_images(tmp_path: Path) -> None:
    root = write(tmp_path / "shards", numbered())
    for path in root.iterdir():
        with tarfile.open(path) as tar:
            tar.extractall(tmp_path / "folder" / path.name, filter="data")
    source, folder = opened(root), Folder(tmp_path / "folder")
    assert len(source) == 24
    assert ids(source) == ids(folder)
    assert source.fingerprint == folder.fingerprint
    assert all(map(torch.equal, images(source), images(folder)))
    assert (source.probe.size, source.median_side) == (folder.probe.size, folder.median_side) == (None, 5)
    assert torch.equal(source.read(-1)["image"], source.read(23)["image"])
    with pytest.raises(IndexError):
        source.read(24)


def test_the_order_is_that_of_names_and_not_of_places(tmp_path: Path) -> None:
    members = [(f"{i}.png", png(i)) for i in range(4)]
    one = opened(write(tmp_path / "one", {"b.tar": members[:2], "a.tar": members}))
    other = opened(write(tmp_path / "other", {"a.tar": members[::-1], "b.tar": members[1::-1]}))
    expected = ["a.tar/0.png", "a.tar/1.png", "a.tar/2.png", "a.tar/3.png", "b.tar/0.png", "b.tar/1.png"]
    assert ids(one) == ids(other) == expected
    assert [int(image[0, 0, 0]) for image in images(other)] == [0, 1, 2, 3, 0, 1]
    assert one.fingerprint == other.fingerprint, "neither place nor order of writing matters"
    assert one.cache_key != other.cache_key


def test_the_fingerprint_follows_names_and_lengths(tmp_path: Path) -> None:
    marks = {
        opened(write(tmp_path / f"{i}", shards)).fingerprint
        for i, shards in enumerate(
            [
                {"a.tar": [("0.png", png(0)), ("1.png", png(1))]},
                {"a.tar": [("0.png", png(0))], "b.tar": [("1.png", png(1))]},
                {"a.tar": [("0.png", png(0)), ("2.png", png(1))]},
                {"a.tar": [("0.png", png(0)), ("1.png", png(1) + b"\0")]},
                {"c.tar": [("0.png", png(0)), ("1.png", png(1))]},
            ]
        )
    }
    assert len(marks) == 5


def test_labels_stand_in_cls_members(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "shards", numbered()))
    assert source.labels is not None
    assert source.labels.tolist() == [i % 3 for i in range(24)]
    assert source.classes == ("7", "8", "9")
    plain = opened(tmp_path / "shards", labelled=False)
    assert (plain.labels, plain.classes) == (None, ())


def test_classes_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    members = [(f"{i}.{ending}", data) for i in (2, 10) for ending, data in (("png", png(i)), ("cls", b"%d" % i))]
    assert opened(write(tmp_path / "shards", {"a.tar": members})).classes == ("2", "10")


def test_every_image_of_a_key_is_a_sample(tmp_path: Path) -> None:
    members = [("x.left.png", png(1)), ("x.cls", b"4"), ("x.right.png", png(2)), ("x.json", b"{}")]
    source = opened(write(tmp_path / "shards", {"a.tar": members}))
    assert ids(source) == ["a.tar/x.left.png", "a.tar/x.right.png"]
    assert source.labels is not None
    assert source.labels.tolist() == [0, 0]


def test_a_missing_label_leaves_all_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = numbered()
    shards["train-000002.tar"].append(("9999.png", png(9)))
    source = opened(write(tmp_path / "shards", shards))
    assert (source.labels, source.classes) == (None, ())
    assert capsys.readouterr().err == "'shards/' counts as unlabelled: 1 of its 25 images have no .cls\n"


def test_a_label_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    shards = numbered()
    shards["train-000002.tar"] += [("cat.png", png(9)), ("cat.cls", b"cat")]
    root = write(tmp_path / "shards", shards)
    expected = r"^the .cls of train-000002.tar/cat.png in 'shards/' is not a whole number: write one, or use --unlabell"
    with pytest.raises(UserError, match=expected):
        opened(root)
    assert len(opened(root, labelled=False)) == 25


def test_without_cls_directories_give_the_labels(tmp_path: Path) -> None:
    shards = {
        "a.tar": [("set/ox/1.png", png(1)), ("set/ox/2.png", png(2))],
        "b.tar": [("./set/zebra/1.png", png(3)), ("set/ox/3.png", png(4))],
    }
    source = opened(write(tmp_path / "shards", shards))
    assert source.classes == ("ox", "zebra")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 0, 0, 1]


def test_copies_in_other_processes_and_threads_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two open tars, so that they are closed all the time."""
    monkeypatch.setattr(tar_module, "_opened", lru_cache(2)(tar_module._OpenTar))
    source = opened(write(tmp_path / "shards", numbered(per_shard=1)))
    expected = images(source)
    copy = pickle.loads(pickle.dumps(source))
    with ThreadPoolExecutor(8) as pool:
        for one in (source, copy):
            found = list(pool.map(one.read, [7 * i % 24 for i in range(480)]))
            assert all(torch.equal(sample["image"], expected[7 * i % 24]) for i, sample in enumerate(found))


_FEW_DESCRIPTORS = """
import resource, sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from manyview.data.patterns import tars_in
from manyview.data.tar import Shards
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
source = Shards("many", tars_in(Path(sys.argv[1])))
print([int(source.read(i)["image"][0, 0, 0]) for _ in range(2) for i in range(len(source))])
"""


def test_many_shards_need_few_descriptors(tmp_path: Path) -> None:
    root = write(tmp_path / "shards", numbered(90, per_shard=1))
    run = subprocess.run([sys.executable, "-c", _FEW_DESCRIPTORS, root], capture_output=True, text=True, check=True)
    assert run.stdout == f"{list(range(90)) * 2}\n"
    assert run.stderr == ""


def test_a_shard_that_changes_under_way_is_not_read(tmp_path: Path) -> None:
    root = write(tmp_path / "shards", numbered())
    source = opened(root)
    write(root, {"train-000001.tar": [("other.png", png(1))]})
    assert source.read(4)["image"][0, 0, 0] == 4
    with pytest.raises(Unreadable, match=r"train-000001.tar' has changed since it was opened: start again"):
        source.read(5)
    (root / "train-000002.tar").unlink()
    tar_module._opened.cache_clear()  # some images of all shards were looked at
    with pytest.raises(Unreadable, match="No such file"):
        source.read(10)


def test_an_empty_shard_is_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path / "shards", {"a.tar": [("a.txt", b"")], "b.tar": [("b.png", png(1))], "c.tar": []})
    source = opened(root)
    assert ids(source) == ["b.tar/b.png"]
    assert source.read(0)["image"][0, 0, 0] == 1
    assert capsys.readouterr().err == f"2 of the 3 tars of 'shards/' hold no images, the first is {root}/a.tar\n"


def test_shards_without_images_say_which_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'shards/' holds no images: files ending in .jpg"):
        opened(write(tmp_path / "shards", {"a.tar": [("a.txt", b"")], "b.tar": []}))


def corner(sample: Mapping[str, Tensor], index: int, epoch: int) -> dict[str, Tensor]:
    return {"image": sample["image"][None, :, :2, :2]}


def batches(source: Source, **options: int) -> list[Batch]:
    return list(Loader(source, crop=corner, batch_size=5, seed=3, stop=14, **options))


def same(ones: list[Batch], others: list[Batch]) -> bool:
    return len(ones) == len(others) and all(
        (a.step, a.epoch) == (b.step, b.epoch)
        and torch.equal(a.index, b.index)
        and torch.equal(a.fields["image"], b.fields["image"])
        for a, b in zip(ones, others, strict=True)
    )


def test_a_resumed_run_reads_on_where_it_stopped(tmp_path: Path) -> None:
    root = write(tmp_path / "shards", numbered())
    whole = batches(opened(root))
    assert [batch.fields["image"][:, 0, 0, 0, 0].tolist() for batch in whole] == [
        batch.index.tolist() for batch in whole
    ]
    for start in (1, 4, 9):
        assert same(batches(opened(root), start=start), whole[start:])


def test_workers_read_the_same(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "shards", numbered()))
    assert same(batches(source, workers=2), batches(source))


def test_three_ways_to_name_the_same_shards(tmp_path: Path) -> None:
    root = write(tmp_path / "shards", numbered())
    specs = [f"{root}", f"{root}/train-*.tar", f"{root}/train-{{000000..000004}}.tar"]
    sources = [open_source(spec) for spec in specs]
    assert all(isinstance(source, Shards) for source in sources)
    assert [source.name for source in sources] == [f"{root}/", *specs[1:]]
    assert len({source.fingerprint for source in sources}) == 1
    assert all(map(torch.equal, images(sources[0]), images(sources[2])))


def test_small_images_of_one_size_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"{i}.tar": [("a.png", png(i)), ("a.cls", b"%d" % i)] for i in range(4)}
    root = write(tmp_path / "shards", members)
    first = open_source(str(root))
    assert isinstance(first, Packed)
    assert first.labels is not None
    assert first.labels.tolist() == [0, 1, 2, 3]
    assert [first.id(i) for i in range(4)] == [f"{i}.tar/a.png" for i in range(4)]
    assert first.fingerprint == opened(root).fingerprint
    monkeypatch.setattr("manyview.data.packed._write", lambda *_, **__: pytest.fail("packed again"))
    assert torch.equal(open_source(f"{root}/").batch(torch.arange(4))["image"], first.batch(torch.arange(4))["image"])


def test_a_changed_shard_is_packed_again(tmp_path: Path) -> None:
    root = write(tmp_path / "shards", {f"{i}.tar": [("a.png", png(i))] for i in range(8)})
    open_source(str(root))
    stamp = (root / "5.tar").stat().st_mtime_ns
    write(root, {"5.tar": [("a.png", png(100))]})
    os.utime(root / "5.tar", ns=(stamp, stamp + 1))
    assert open_source(str(root)).read(5)["image"][0, 0, 0] == 100


def test_photographs_in_shards(real_data: Path, tmp_path: Path) -> None:
    photographs = sorted((real_data / "coco-mini/train2017").iterdir())[:12]
    shards = {
        f"{i}.tar": [(photo.name, photo.read_bytes()) for photo in photographs[4 * i : 4 * i + 4]] for i in range(3)
    }
    source = open_source(f"{write(tmp_path / 'shards', shards)}/{{0..2}}.tar")
    folder = Folder(real_data / "coco-mini/train2017")
    assert isinstance(source, Shards)
    assert all(torch.equal(source.read(i)["image"], folder.read(i)["image"]) for i in range(12))
