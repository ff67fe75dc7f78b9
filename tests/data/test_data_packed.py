"""One file that holds a set: complete, lazy, and suspicious of strangers."""

import json
import multiprocessing
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from manyview.data import Folder, Packed, Source, pack
from manyview.data import packed as packed_module
from manyview.data.source import Arrays, Unreadable
from manyview.errors import UserError


class Numbers(Arrays):
    """Images of n random sets of pixels."""

    def __init__(self, count: int, height: int = 5, width: int = 3, labelled: bool = True) -> None:
        self.name, self.fingerprint, self.size = "numbers", f"fp{count}", (height, width)
        self.images = torch.from_numpy(
            np.random.default_rng(0).integers(0, 256, (count, 3, height, width), dtype=np.uint8)
        )
        self.arrays = {"image": self.images}
        if labelled:
            self.labels, self.classes = torch.arange(count) % 2, ("even", "odd")


def photos(root: Path, count: int = 40, broken: int = 0, odd: bool = False) -> Path:
    for i in range(count):
        path = root / f"kind{i % 3}/{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (i, 2 * i, 3 * i)).save(path)
        if i < broken:
            path.write_bytes(path.read_bytes()[:-30])
    if odd:
        Image.new("RGB", (20, 10)).save(root / "kind0/odd.png")
    return root


def same(a: Source, b: Source) -> bool:
    assert a.labels is not None
    assert b.labels is not None
    return (
        len(a) == len(b)
        and a.classes == b.classes
        and torch.equal(a.labels, b.labels)
        and all(a.id(i) == b.id(i) and torch.equal(a.read(i)["image"], b.read(i)["image"]) for i in range(len(a)))
    )


def test_a_folder_survives_packing(tmp_path: Path) -> None:
    folder = Folder(photos(tmp_path / "photos"))
    packed = pack(folder, tmp_path / "a.safetensors", progress=False)
    assert same(folder, packed)
    assert packed.size == (7, 9)
    assert packed.fingerprint == folder.fingerprint
    assert packed.name == folder.name
    assert torch.equal(
        packed.batch(torch.tensor([3, 1, 3]))["image"], torch.stack([folder.read(i)["image"] for i in (3, 1, 3)])
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 300])  # every alignment of what follows the images
def test_arrays_survive_packing(tmp_path: Path, count: int) -> None:
    source = Numbers(count)
    assert same(source, pack(source, tmp_path / "a.safetensors", progress=False))


def test_any_reader_of_safetensors_understands_the_file(tmp_path: Path) -> None:
    source = Numbers(10)
    pack(source, tmp_path / "a.safetensors", progress=False)
    tensors = load_file(tmp_path / "a.safetensors")
    assert torch.equal(tensors["image"], source.images)
    assert source.labels is not None
    assert torch.equal(tensors["labels"], source.labels)


def test_unlabelled_sets_stay_unlabelled(tmp_path: Path) -> None:
    packed = pack(Numbers(4, labelled=False), tmp_path / "a.safetensors", progress=False)
    assert (packed.labels, packed.classes) == (None, ())
    pack(Numbers(4), tmp_path / "b.safetensors", progress=False)
    assert Packed(tmp_path / "b.safetensors", labelled=False).labels is None


def test_worker_processes_give_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(photos(tmp_path / "photos", broken=1))
    monkeypatch.setattr(packed_module, "_CHUNK_BYTES", 7 * 9 * 3 * 6)
    pack(folder, tmp_path / "a.safetensors", progress=False)
    monkeypatch.setattr(packed_module, "_PARALLEL", 1)
    monkeypatch.setattr(packed_module, "processors", lambda: 2)
    pack(folder, tmp_path / "b.safetensors", progress=False)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_unreadable_images_are_left_out_and_listed(tmp_path: Path) -> None:
    folder = Folder(photos(tmp_path / "photos", broken=2))
    packed = pack(folder, tmp_path / "a.safetensors", progress=False)
    assert len(packed) == 38
    assert [id_ for id_, _ in packed.unreadable] == ["kind0/000.png", "kind1/001.png"]
    assert all(reason for _, reason in packed.unreadable)
    assert packed.id(0) == "kind0/003.png"
    assert packed.read(0)["image"][:, 0, 0].tolist() == [3, 6, 9]
    assert packed.fingerprint != folder.fingerprint


def test_too_many_unreadable_images_are_an_error_and_leave_no_file(tmp_path: Path) -> None:
    folder = Folder(photos(tmp_path / "photos", broken=3))
    with pytest.raises(UserError, match=r"more than 5% of the images of .* cannot be read: repair or remove them"):
        pack(folder, tmp_path / "a.safetensors", progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_images_of_several_sizes_need_an_image_size(tmp_path: Path) -> None:
    folder = Folder(photos(tmp_path / "photos", odd=True))
    with pytest.raises(UserError, match=r"differ in size \(7 × 9, but 10 × 20 for kind0/odd.png\): .*--image-size"):
        pack(folder, tmp_path / "a.safetensors", progress=False)
    packed = pack(folder, tmp_path / "a.safetensors", image_size=6, progress=False)
    assert packed.size == (6, 6)
    assert len(packed) == 41
    assert packed.preprocess == "shorter side resized to 6, centre crop 6 × 6"
    assert packed.fingerprint != folder.fingerprint


def test_the_centre_is_cut_out_of_the_resized_image(tmp_path: Path) -> None:
    class Stripes(Numbers):
        def __init__(self) -> None:
            super().__init__(1, 4, 12)
            self.images = torch.zeros(1, 3, 4, 12, dtype=torch.uint8)
            self.images[..., 4:8] = 200
            self.arrays = {"image": self.images}

    assert (pack(Stripes(), tmp_path / "a.safetensors", image_size=4, progress=False).arrays["image"] == 200).all()
    assert pack(Stripes(), tmp_path / "b.safetensors", image_size=2, progress=False).arrays["image"][0].min() > 150


def test_an_existing_file_is_replaced_once_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    pack(Numbers(3), path, progress=False)
    reader = Packed(path)

    class Broken(Numbers):
        def batch(self, index: Tensor) -> dict[str, Tensor]:
            raise UserError("it breaks off")

    with pytest.raises(UserError, match="it breaks off"):
        pack(Broken(2), path, progress=False)
    assert len(Packed(path)) == 3
    assert len(pack(Numbers(2), path, progress=False)) == 2
    assert reader.read(2)["image"].shape == Packed(path).read(1)["image"].shape, "who reads the old one goes on"
    with pytest.raises(UserError, match=r"is a directory: name a file"):
        pack(Numbers(2), tmp_path)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written \(.*\): choose a place with room for it"):
        pack(Numbers(2), tmp_path / "file/a.safetensors", progress=False)


def test_an_interrupted_packing_leaves_nothing(tmp_path: Path) -> None:
    class Interrupted(Numbers):
        def batch(self, index: Tensor) -> dict[str, Tensor]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(Interrupted(3), tmp_path / "a.safetensors", progress=False)
    assert list(tmp_path.iterdir()) == []


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to see the memory in use")
def test_opening_does_not_read_the_images(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    pack(Numbers(1000, 128, 128), path, progress=False)
    before = resident()
    packed = Packed(path)
    packed.batch(torch.tensor([500]))
    assert path.stat().st_size > 45 << 20
    assert resident() - before < 5 << 20


def _first_pixel(source: Packed) -> int:
    return int(source.read(1)["image"][0, 0, 0])


def test_other_processes_get_the_path_and_not_the_pixels(tmp_path: Path) -> None:
    packed = pack(Numbers(1000), tmp_path / "a.safetensors", progress=False)
    assert len(pickle.dumps(packed)) < 1000
    assert same(pickle.loads(pickle.dumps(packed)), packed)


@pytest.mark.slow
def test_a_spawned_process_reads_the_same(tmp_path: Path) -> None:
    packed = pack(Numbers(10), tmp_path / "a.safetensors", progress=False)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_first_pixel, (packed,)) == _first_pixel(packed)


GOOD: dict[str, Any] = {
    "format": 2, "name": "x", "fields": ["image"], "classes": ["a", "b"], "group_names": [], "fingerprint": "00",
    "preprocess": "as stored",
}  # fmt: skip


def forged(path: Path, facts: object = GOOD, **changes: Tensor | None) -> Path:
    tensors = {
        "image": torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
        "ids": torch.tensor(list(b"p\0q\0"), dtype=torch.uint8),
        "labels": torch.tensor([0, 1]),
        "unreadable": torch.tensor(list(b"[]"), dtype=torch.uint8),
    } | changes
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, path, metadata={"manyview-pack": facts if isinstance(facts, str) else json.dumps(facts)})
    return path


def test_the_forged_files_below_differ_from_this_good_one(tmp_path: Path) -> None:
    assert [Packed(forged(tmp_path / "a.safetensors")).id(i) for i in range(2)] == ["p", "q"]


@pytest.mark.parametrize(
    "changes",
    [
        {"image": None},
        {"image": torch.zeros(2, 3, 4, 4)},
        {"image": torch.zeros(2, 4, 4, dtype=torch.uint8)},
        {"image": torch.zeros(2, 1, 4, 4, dtype=torch.uint8)},
        {"image": torch.zeros(0, 3, 4, 4, dtype=torch.uint8)},
        {"image": torch.zeros(2, 3, 0, 4, dtype=torch.uint8)},
        {"labels": torch.tensor([0, 1, 0])},
        {"labels": torch.tensor([0, 2])},
        {"labels": torch.tensor([0, -1])},
        {"labels": torch.tensor([0.0, 1.0])},
        {"ids": torch.tensor(list(b"p\0q"), dtype=torch.uint8)},
        {"ids": None},
        {"unreadable": torch.tensor(list(b"[[1]]"), dtype=torch.uint8)},
        {"unreadable": torch.tensor(list(b"[" * 100_000), dtype=torch.uint8)},
        {"unreadable": torch.tensor([255, 254], dtype=torch.uint8)},
        {"more": torch.zeros(1)},
        {"facts": "not json"},
        {"facts": "[" * 100_000},
        {"facts": []},
        {"facts": {**GOOD, "format": 1}},
        {"facts": {**GOOD, "fields": []}},
        {"facts": {**GOOD, "fields": ["image", "depth"]}},
        {"facts": {**GOOD, "fields": ["smell"]}},
        {"facts": {**GOOD, "fields": [["image"]]}},
        {"depth": torch.zeros(2, 1, 4, 4, dtype=torch.uint16)},
        {"groups": torch.tensor([0, -1])},
        {"groups": torch.tensor([0, 1, 1])},
        {"groups": torch.tensor([0, 1]), "facts": {**GOOD, "group_names": ["one"]}},
        {"facts": {**GOOD, "group_names": [1]}},
        {"present.image": torch.zeros(3, dtype=torch.uint8)},
        {"facts": {**GOOD, "classes": "ab"}},
        {"facts": {**GOOD, "classes": [1, 2]}},
        {"facts": {**GOOD, "name": None}},
        {"facts": {key: value for key, value in GOOD.items() if key != "fingerprint"}},
    ],
    ids=str,
)
def test_forged_files_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"is not a packed set.*: make it with manyview pack") as caught:
        Packed(forged(tmp_path / "a.safetensors", **changes))
    assert "\n" not in str(caught.value)


def test_a_file_of_another_version_says_so(tmp_path: Path) -> None:
    old = {"images": torch.zeros(2, 3, 4, 4, dtype=torch.uint8), "image": None}
    with pytest.raises(UserError, match=r"it was packed by another version of manyview\): make it with manyview pack"):
        Packed(forged(tmp_path / "a.safetensors", {**GOOD, "format": 1, "planes": []}, **old))


class Rooms(Arrays):
    """Samples with depth, which some lack, in groups of two; one cannot be read."""

    fields = selected = ("image", "segmentation", "depth")
    present: dict[str, Tensor]
    groups: Tensor

    def __init__(self, count: int = 7, *, broken: int | None = None) -> None:
        self.name, self.fingerprint, self.size = "rooms", "rooms", (5, 3) if broken is None else None
        self.broken = broken
        draw = np.random.default_rng(0)
        self.arrays = {
            "image": torch.from_numpy(draw.integers(0, 256, (count, 3, 5, 3), dtype=np.uint8)),
            "segmentation": torch.from_numpy(draw.integers(0, 65536, (count, 1, 5, 3), dtype=np.uint16)),
            "depth": torch.from_numpy(draw.integers(0, 65536, (count, 1, 5, 3), dtype=np.uint16)),
        }
        self.labels, self.classes = torch.arange(count) % 2, ("even", "odd")
        self.present = {"depth": torch.arange(count) % 3 != 1}
        self.groups, self.group_names = torch.arange(count) // 2, tuple("abcd")

    def read(self, index: int) -> dict[str, Tensor]:
        if index == self.broken:
            raise Unreadable("torn")
        return super().read(index)


@pytest.mark.parametrize("broken", [None, 2])
def test_all_fields_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int | None) -> None:
    monkeypatch.setattr(packed_module, "UNREADABLE_SHARE", 0.5)
    source = Rooms(broken=broken)
    kept = torch.tensor([number for number in range(7) if number != broken])
    packed = pack(source, tmp_path / "a.safetensors", progress=False)
    assert packed.selected == source.selected
    assert [packed.id(i) for i in range(len(packed))] == [source.id(i) for i in kept.tolist()]
    for name, field in packed.batch(torch.arange(len(packed))).items():
        assert field.dtype == source.arrays[name].dtype
        assert torch.equal(field, source.arrays[name][kept])
    assert packed.present is not None
    assert torch.equal(packed.present["depth"], source.present["depth"][kept])
    assert packed.groups is not None
    assert torch.equal(packed.groups, source.groups[kept])
    assert tuple(packed.group_names) == source.group_names
    only = packed.select(["depth"])
    assert list(only.read(0)) == ["depth"]
    assert only.fingerprint != packed.fingerprint
    assert pickle.loads(pickle.dumps(only)).selected == ("depth",)
    with pytest.raises(UserError, match="'rooms' has no normals, only image, segmentation, depth: take --views of"):
        packed.select(["normals"])
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_fields_are_resized_as_their_kind_asks(tmp_path: Path) -> None:
    source = Rooms()
    packed = pack(source, tmp_path / "a.safetensors", image_size=6, progress=False)
    assert packed.size == (6, 6)
    for name in ("depth", "segmentation"):
        assert set(packed.arrays[name][0].flatten().tolist()) <= set(source.arrays[name][0].flatten().tolist())


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = forged(tmp_path / "a.safetensors")
    whole = path.read_bytes()
    for content in (
        b"",
        b"text",
        whole[:-1],
        whole + b"x",
        struct.pack("<Q", 1 << 60) + whole[8:],
        whole[:8] + b"\0" * 500,
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is not a packed set, or is damaged"):
            Packed(path)
