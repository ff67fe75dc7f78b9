"""Who trains and who is tested."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from manyview.data.source import Arrays, Source
from manyview.errors import UserError
from manyview.evaluate.split import match_classes, splits


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))


def tree(root: Path, *classes: str, count: int = 20, first: int = 0) -> str:
    """A folder of small images, one directory per class; the red channel is the length of the class's name."""
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(first, first + count):
            Image.new("RGB", (8, 8), (len(name), number, 0)).save(root / name / f"{number}.png")
    return str(root)


def counted(source: Source) -> dict[str, int]:
    assert source.labels is not None
    return {name: int((source.labels == number).sum()) for number, name in enumerate(source.classes)}


def test_a_folder_alone_holds_20_percent_out_and_says_so(tmp_path: Path) -> None:
    split = splits(tree(tmp_path / "photos", "cat", "dog", count=100))
    assert split.words == "20 % held out by hash"
    ids = [{source.id(number) for number in range(len(source))} for source in (split.train, split.test)]
    assert not ids[0] & ids[1]
    assert len(ids[0] | ids[1]) == 200
    assert 0.1 < len(ids[1]) / 200 < 0.3


def test_held_out_samples_stay_held_out_when_others_arrive(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    before = splits(tree(root, "cat", "dog", count=50)).test
    after = splits(tree(root, "zebra", count=50) and str(root)).test
    names = [{source.id(number) for number in range(len(source))} for source in (before, after)]
    assert names[0] == {name for name in names[1] if not name.startswith("zebra")}


def test_the_own_test_split_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Labelled(Arrays):
        def __init__(self, split: str) -> None:
            self.name, self.fingerprint, self.size = "cifar10", split, (2, 2)
            self.arrays = {"image": torch.zeros(4, 3, 2, 2).byte()}
            self.labels, self.classes = torch.arange(4), tuple("abcd")

    def fake(spec: str, *, split: str = "train", labelled: bool = True, camera: object = None) -> Source:
        opened.append(f"{spec} {split}")
        return Labelled(split)

    monkeypatch.setattr("manyview.evaluate.split.open_source", fake)
    split = splits("cifar10:data")
    assert split.words == "cifar10 (test split)"
    assert opened == ["cifar10:data train", "cifar10:data test"]
    assert (split.train.fingerprint, split.test.fingerprint) == ("train", "test")


def test_explicit_test_data_is_matched_by_class_name(tmp_path: Path) -> None:
    data = tree(tmp_path / "train", "ant", "bird", "chimp", "dormouse")
    test_data = tree(tmp_path / "test", "chimp", "bird", count=5, first=50)
    split = splits(data, test_data)
    assert split.words == f"{test_data}/"
    assert len(split.train) == 80
    assert counted(split.test) == {"ant": 0, "bird": 5, "chimp": 5, "dormouse": 0}
    assert split.test.labels is not None
    for number in range(len(split.test)):  # the name's length is painted into the image
        assert len(split.test.classes[int(split.test.labels[number])]) == int(split.test.read(number)["image"][0, 0, 0])
    batch = split.test.batch(torch.tensor([0, 9]))["image"]
    assert torch.equal(batch[1], split.test.read(9)["image"])


def test_a_test_class_that_was_never_trained_is_named(tmp_path: Path) -> None:
    data, test_data = tree(tmp_path / "train", "ant", "bird"), tree(tmp_path / "test", "ant", "cow", "yak")
    with pytest.raises(UserError, match="cow, yak"):
        splits(data, test_data)


def test_testing_on_the_training_images_is_refused(tmp_path: Path) -> None:
    data = tree(tmp_path / "train", "ant", "bird")
    with pytest.raises(UserError, match="same samples"):
        splits(data, data)


@pytest.mark.parametrize("flag", ["--data", "--test-data"])
def test_unlabelled_images_say_where_labels_come_from(tmp_path: Path, flag: str) -> None:
    (tmp_path / "loose").mkdir()
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "loose" / f"{number}.png")
    loose, data = str(tmp_path / "loose"), tree(tmp_path / "train", "ant", "bird")
    with pytest.raises(UserError, match=f"{flag} .*first directory level"):
        splits(*((loose,) if flag == "--data" else (data, loose)))


def test_equal_classes_need_no_renumbering(tmp_path: Path) -> None:
    split = splits(tree(tmp_path / "photos", "ant", "bird"))
    assert match_classes(split.test, ("ant", "bird")) is split.test
