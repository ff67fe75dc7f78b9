"""What a user may write after --data, and the packed copies that small sets get."""

import os
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

from manyview.data import Folder, NoTestSplit, Packed, Source, Tar, decoding, open_source, pack
from manyview.data import folder as folder_module
from manyview.errors import UserError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def photos(root: Path, count: int = 30, size: tuple[int, int] = (8, 8)) -> Path:
    for i in range(count):
        path = root / f"kind{i % 3}/{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (i, 0, 0)).save(path)
    return root


def never(*_: object, **__: object) -> None:
    pytest.fail("packed again")


def test_small_equal_images_are_packed_once(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = photos(tmp_path / "photos")
    first = open_source(str(root))
    assert isinstance(first, Packed)
    assert first.size == (8, 8)
    assert (len(first), first.classes) == (30, ("kind0", "kind1", "kind2"))
    assert first.fingerprint == Folder(root).fingerprint
    line = capsys.readouterr().err
    assert line.startswith(f"packed 30 images of '{root}/' into {first.path}")
    assert line.count("\n") == 1
    assert [first.path] == list(cache.iterdir())
    monkeypatch.setattr("manyview.data.packed._write", never)
    second = open_source(str(root))
    assert capsys.readouterr().err == ""
    assert torch.equal(first.batch(torch.arange(30))["image"], second.batch(torch.arange(30))["image"])


def test_a_packed_copy_bears_the_name_of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "photos")
    open_source(str(root))
    monkeypatch.chdir(tmp_path)
    assert open_source("photos/").name == "photos/"


def test_a_packed_copy_may_be_unlabelled(tmp_path: Path) -> None:
    source = open_source(str(photos(tmp_path / "photos")), labelled=False)
    assert (source.size, source.labels, source.classes) == ((8, 8), None, ())


def test_changed_images_are_packed_again(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    before = open_source(str(root))
    path = root / "kind1/001.png"
    stamp = path.stat().st_mtime_ns
    Image.new("RGB", (8, 8), (200, 0, 0)).save(path)
    os.utime(path, ns=(stamp, stamp + 1))
    after = open_source(str(root))
    names = [after.id(i) for i in range(len(after))]
    assert before.read(names.index("kind1/001.png"))["image"][0, 0, 0] == 1
    assert after.read(names.index("kind1/001.png"))["image"][0, 0, 0] == 200


def test_a_change_of_the_code_that_makes_the_pixels_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "photos")
    open_source(str(root))
    decode: Callable[..., torch.Tensor] = decoding.decode
    monkeypatch.setattr(folder_module, "decode", lambda *how: decode(*how) + 1)
    assert open_source(str(root)).read(0)["image"][0, 0, 0] == 1


def test_a_damaged_copy_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = photos(tmp_path / "photos")
    first = open_source(str(root))
    assert isinstance(first, Packed)
    first.path.rename(first.path.with_suffix(".old"))
    first.path.write_bytes(b"rubbish")
    capsys.readouterr()
    assert len(open_source(str(root))) == 30
    assert "is damaged and will be made again" in capsys.readouterr().err


def test_processes_that_pack_at_the_same_time_do_not_harm_each_other(tmp_path: Path, cache: Path) -> None:
    root = photos(tmp_path / "photos")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: open_source(str(root)).batch(torch.arange(30))["image"], range(8)))
    assert all(torch.equal(images, found[0]) for images in found)
    assert len(list(cache.iterdir())) == 1


def test_large_and_uneven_images_are_read_in_place(tmp_path: Path, cache: Path) -> None:
    assert isinstance(open_source(str(photos(tmp_path / "large", size=(97, 20)))), Folder)
    uneven = photos(tmp_path / "uneven")
    Image.new("RGB", (9, 8)).save(uneven / "kind0/odd.png")
    source = open_source(str(uneven))
    assert isinstance(source, Folder)
    assert (source.size, source.median_side) == (None, 8)
    assert not cache.exists()


def test_an_odd_image_that_the_probe_missed_only_costs_the_packing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = photos(tmp_path / "photos")
    Image.new("RGB", (9, 8)).save(root / "kind0/odd.png")
    monkeypatch.setattr(folder_module, "_PROBE_ALL", 0)
    monkeypatch.setattr(folder_module, "_PROBE_SOME", 1)
    assert isinstance(open_source(str(root)), Folder)
    assert "not packed: the images of" in capsys.readouterr().err


def test_broken_images_of_a_packed_set_stay_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = photos(tmp_path / "photos")
    broken = root / "kind0/000.png"
    broken.write_bytes(broken.read_bytes()[:-30])
    source = open_source(str(root))
    assert len(source) == 29
    assert [id_ for id_, _ in source.unreadable] == ["kind0/000.png"]
    assert "1 cannot be read and were left out" in capsys.readouterr().err


def test_too_many_broken_images_are_an_error_as_the_set_is_opened(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    for path in sorted(root.rglob("*.png"))[:2]:
        path.write_bytes(path.read_bytes()[:-30])  # the headers are whole
    with pytest.raises(UserError, match="more than 5% of the images"):
        open_source(str(root))


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "file/cache"))
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\): set MANYVIEW_CACHE to a directory"):
        open_source(str(photos(tmp_path / "photos")))


def test_a_tar_and_a_packed_file_are_opened_by_their_ending(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(root, "photos")
    from_tar = open_source(str(tmp_path / "a.tar"))
    assert isinstance(from_tar, Packed)
    assert from_tar.classes == ("kind0", "kind1", "kind2")
    pack(Tar(tmp_path / "a.tar"), tmp_path / "mine.safetensors", progress=False)
    mine = open_source(str(tmp_path / "mine.safetensors"))
    assert isinstance(mine, Packed)
    assert mine.path == tmp_path / "mine.safetensors"
    assert torch.equal(mine.batch(torch.arange(30))["image"], from_tar.batch(torch.arange(30))["image"])


def test_scenes_has_two_splits_and_any_number_of_images(cache: Path) -> None:
    train: Source = open_source("scenes:30")
    assert (train.name, len(train), train.size, train.median_side) == ("scenes", 30, (32, 32), 32)
    assert train.labels is not None
    assert len(train.classes) >= 10
    assert torch.equal(
        open_source("scenes:30", split="pretrain").batch(torch.arange(30))["image"],
        train.batch(torch.arange(30))["image"],
    )
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("spec", ["scenes:abc", "scenes:", "scenes:0", "scenes:-5", "scenes:1.5", "scenes:²"])
def test_scenes_wants_a_number(spec: str) -> None:
    with pytest.raises(UserError, match=f"'{spec}' does not say how many images: use scenes, or scenes:N"):
        open_source(spec)


@pytest.mark.parametrize("spec", ["", "cifra10", "no/such/place", "mnist:/data", "a.tar"])
def test_an_unknown_name_or_path_lists_what_is_known(spec: str) -> None:
    with pytest.raises(
        UserError, match=f"'{spec}' does not exist and is not a known set: give a directory.*imagenet100"
    ):
        open_source(spec)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("")
    with pytest.raises(
        UserError, match=r"is a file of another kind: give a directory, a .tar of images, a .parquet or a packed"
    ):
        open_source(str(tmp_path / "a.zip"))


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no images"):
        open_source(str(tmp_path))


def test_a_compressed_tar_is_refused_by_name_or_content(tmp_path: Path) -> None:
    for name in ("a.tar.gz", "a.tgz"):
        with tarfile.open(tmp_path / name, "w:gz"):
            pass
        with pytest.raises(UserError, match="is compressed"):
            open_source(str(tmp_path / name))


def test_a_directory_of_compressed_tars_is_no_empty_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz"):
        pass
    with pytest.raises(UserError, match=r"a.tar.gz' is compressed \(gzip\), so its images cannot be read one by one"):
        open_source(str(tmp_path))


def test_special_characters_in_the_name_of_a_directory_are_no_pattern(tmp_path: Path) -> None:
    assert len(open_source(str(photos(tmp_path / "photos [2] {a,b}*")))) == 30


def test_paths_have_no_test_split(tmp_path: Path) -> None:
    for spec in (photos(tmp_path / "photos"), tmp_path / "shards-*.tar"):
        with pytest.raises(NoTestSplit, match="has no test split: name other images with --test-data"):
            open_source(str(spec), split="test")


def test_an_unknown_split_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="'val' is not one of"):
        open_source("scenes", split="val")


def test_cifar10_from_a_tar_is_packed_and_batched(real_data: Path) -> None:
    source = open_source(str(real_data / "cifar10/test.tar"))
    assert isinstance(source, Packed)
    assert (len(source), source.size) == (10_000, (32, 32))
    tar = Tar(real_data / "cifar10/test.tar")
    index = torch.arange(0, 10_000, 977)
    assert torch.equal(source.batch(index)["image"], torch.stack([tar.read(i)["image"] for i in index.tolist()]))
    assert source.labels is not None
    assert tar.labels is not None
    assert torch.equal(source.labels, tar.labels)


def test_photographs_are_read_in_place(real_data: Path) -> None:
    source = open_source(str(real_data / "coco-mini/train2017"))
    assert isinstance(source, Folder)
    assert source.labels is None
    assert 300 < source.median_side < 600
