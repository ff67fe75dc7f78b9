"""The sets of the papers, in the files that torchvision knows them by."""

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets
from PIL import Image

from manyview.data import NoTestSplit, Source, open_source
from manyview.data.known import imagenet100_classes
from manyview.errors import UserError


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two training images and one test image, with their checksums in the place of the published ones."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    contents: dict[str, dict[str, Any]] = {
        "data_batch_1": {"data": np.full((1, 3072), 7, np.uint8), "labels": [1]},
        "data_batch_2": {"data": np.arange(3072).astype(np.uint8)[None], "labels": [0]},
        "test_batch": {"data": np.full((1, 3072), 9, np.uint8), "labels": [1]},
        "batches.meta": {"label_names": ["airplane", "automobile"]},
    }
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content))
    kind = torchvision.datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [[n, md5(folder / n)] for n in ("data_batch_1", "data_batch_2")])
    monkeypatch.setattr(kind, "test_list", [["test_batch", md5(folder / "test_batch")]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5(folder / "batches.meta")})
    return tmp_path


@pytest.fixture
def stl10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for name, count in (("train_X", 2), ("unlabeled_X", 3), ("test_X", 1)):
        pixels = np.arange(count)[:, None] + np.zeros((count, 3 * 96 * 96))
        (folder / f"{name}.bin").write_bytes(pixels.astype(np.uint8).tobytes())
    (folder / "train_y.bin").write_bytes(bytes([2, 1]))
    (folder / "test_y.bin").write_bytes(bytes([1]))
    (folder / "class_names.txt").write_text("airplane\nbird\n")
    kind = torchvision.datasets.STL10
    names = ("train_X.bin", "train_y.bin", "unlabeled_X.bin")
    monkeypatch.setattr(kind, "train_list", [[name, md5(folder / name)] for name in names])
    monkeypatch.setattr(kind, "test_list", [[name, md5(folder / name)] for name in ("test_X.bin", "test_y.bin")])
    return tmp_path


def labels(source: Source) -> list[int] | None:
    return None if source.labels is None else source.labels.tolist()


def test_cifar10_has_its_images_labels_and_splits(cifar10: Path) -> None:
    train, test = open_source(f"cifar10:{cifar10}"), open_source(f"cifar10:{cifar10}", split="test")
    assert (len(train), len(test)) == (2, 1)
    assert train.size == (32, 32)
    assert train.classes == ("airplane", "automobile")
    assert (labels(train), labels(test)) == ([1, 0], [1])
    assert (train.read(1)["image"].flatten().numpy() == np.arange(3072).astype(np.uint8)).all()
    assert train.fingerprint != test.fingerprint
    unlabelled = open_source(f"cifar10:{cifar10}", split="pretrain", labelled=False)
    assert (len(unlabelled), unlabelled.labels, unlabelled.classes) == (2, None, ())


def test_a_forged_file_is_refused_before_it_is_unpickled(cifar10: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
            return Path.touch, (tmp_path / "owned",)

    (cifar10 / "cifar-10-batches-py/data_batch_1").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(
        UserError, match=r"cifar10 is not whole in '.*': fetch it with python -c .*CIFAR10.*download=True"
    ):
        open_source(f"cifar10:{cifar10}")
    assert not (tmp_path / "owned").exists()


def test_stl10_pretrains_on_its_unlabelled_images_too(stl10: Path) -> None:
    train, pretrain = open_source(f"stl10:{stl10}"), open_source(f"stl10:{stl10}", split="pretrain")
    assert (len(train), labels(train), train.size) == (2, [1, 0], (96, 96))
    assert (len(pretrain), labels(pretrain), pretrain.classes) == (5, None, ())
    assert [int(pretrain.read(i)["image"][0, 0, 0]) for i in range(5)] == [0, 1, 0, 1, 2]
    assert len(open_source(f"stl10:{stl10}", split="test")) == 1


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
def test_a_missing_set_says_how_to_fetch_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UserError, match=rf"^{name} is not whole in .*: fetch it with .*{name.upper()}\(.*download=True\)"
    ):
        open_source(f"{name}:{tmp_path}")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10", "imagenet", "imagenet100"])
def test_a_set_without_its_directory_says_what_is_missing(name: str) -> None:
    with pytest.raises(UserError, match=f"does not say where the set lies: use {name}:DIRECTORY"):
        open_source(name)
    with pytest.raises(UserError, match=f"'/no/where' is not a directory: give the one that holds {name}"):
        open_source(f"{name}:/no/where")


def imagenet(root: Path, train: tuple[str, ...], val: tuple[str, ...]) -> Path:
    for split, classes in (("train", train), ("val", val)):
        for number, name in enumerate(classes):
            (root / split / name).mkdir(parents=True)
            Image.new("RGB", (120 + number, 100)).save(root / split / name / f"{split}_{name}.JPEG")
    return root


def test_imagenet_numbers_both_splits_alike(tmp_path: Path) -> None:
    classes = ("n01", "n02", "n03")
    root = imagenet(tmp_path, classes, classes)
    (root / "val/n02/val_n02.JPEG").unlink()
    train, val = open_source(f"imagenet:{root}"), open_source(f"imagenet:{root}", split="test")
    assert train.classes == val.classes == classes
    assert (labels(train), labels(val)) == ([0, 1, 2], [0, 2])
    assert train.name == "imagenet"


def test_imagenet_says_which_directory_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"imagenet needs the directory '.*/train', with one directory of images per class"
    ):
        open_source(f"imagenet:{tmp_path}")
    (tmp_path / "train").mkdir()
    with pytest.raises(UserError, match=r"imagenet needs the directory '.*/val'") as caught:
        open_source(f"imagenet:{tmp_path}", split="test")
    assert not isinstance(caught.value, NoTestSplit)


def test_imagenet100_is_the_list_of_cmc(tmp_path: Path) -> None:
    classes = imagenet100_classes()
    assert len(set(classes)) == 100
    assert {"n03777754", "n03930630", "n02869837", "n02090622"} <= set(classes)
    root = imagenet(tmp_path, (*classes, "n00000000"), classes[1:])
    train = open_source(f"imagenet100:{root}")
    assert (len(train), train.classes) == (100, tuple(sorted(classes)))
    with pytest.raises(UserError, match=rf"'imagenet100' lacks 1 of 100 classes in .*/val: add {classes[0]}$"):
        open_source(f"imagenet100:{root}", split="test")
