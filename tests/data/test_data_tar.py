"""A tar in place gives what its extraction gives."""

import io
import os
import pickle
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.data import Folder, Tar, Unreadable
from manyview.errors import UserError


def png(colour: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (6, 5), (colour, 0, 255 - colour)).save(file, "PNG")
    return file.getvalue()


Mode = Literal["w", "w:gz", "w:bz2", "w:xz"]


def make(path: Path, members: Sequence[tuple[str, bytes]], mode: Mode = "w", format: int | None = None) -> Path:
    with tarfile.open(path, mode, format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


MEMBERS = [(f"{kind}/{i}.png", png(10 * i + len(kind))) for i in range(6) for kind in ("zebra", "ox")]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_equals_its_extraction(tmp_path: Path, format: int) -> None:
    long = ("ox/" + "n" * 90 + "/" + "é" * 40 + ".png", png(7))
    path = make(tmp_path / "a.tar", [*MEMBERS, ("notes.txt", b"text"), long], format=format)
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path / "out", filter="data")
    source, folder = Tar(path), Folder(tmp_path / "out")
    assert len(source) == len(folder) == 13
    assert source.classes == folder.classes == ("ox", "zebra")
    assert source.labels is not None
    assert folder.labels is not None
    assert source.labels.tolist() == folder.labels.tolist()
    for i in range(len(source)):
        assert source.id(i) == folder.id(i)
        assert torch.equal(source.read(i)["image"], folder.read(i)["image"])


def test_the_directories_that_all_share_are_no_labels(tmp_path: Path) -> None:
    source = Tar(make(tmp_path / "a.tar", [(f"./set/train/{name}", data) for name, data in MEMBERS]))
    assert source.classes == ("ox", "zebra")
    assert source.id(0) == "set/train/ox/0.png"
    flat = Tar(make(tmp_path / "b.tar", [(f"photos/{i}.png", png(i)) for i in range(3)]))
    assert flat.labels is None


def test_of_members_with_one_name_the_last_counts(tmp_path: Path) -> None:
    source = Tar(make(tmp_path / "a.tar", [("a.png", png(1)), ("a.png", png(2))]))
    assert len(source) == 1
    assert source.read(0)["image"][0, 0, 0] == 2


def test_links_and_hidden_members_are_passed_over(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tar", [("a.png", png(1)), ("._a.png", b"note"), (".git/b.png", png(3))])
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert len(Tar(path)) == 1


def test_copies_in_other_processes_and_threads_read_the_same(tmp_path: Path) -> None:
    source = Tar(make(tmp_path / "a.tar", MEMBERS))
    expected = [source.read(i)["image"] for i in range(12)]
    copy = pickle.loads(pickle.dumps(source))
    with ThreadPoolExecutor(4) as pool:
        for one in (source, copy):
            found = list(pool.map(one.read, [i % 12 for i in range(200)]))
            assert all(torch.equal(sample["image"], expected[i % 12]) for i, sample in enumerate(found))


def test_a_forked_process_does_not_move_its_parents_place(tmp_path: Path) -> None:
    source = Tar(make(tmp_path / "a.tar", MEMBERS))
    expected = [source.read(i)["image"] for i in range(12)]
    child = os.fork()
    if child == 0:
        same = all(torch.equal(source.read(i)["image"], expected[i]) for i in reversed(range(12)))
        os._exit(0 if same else 1)
    assert all(torch.equal(source.read(i)["image"], expected[i]) for i in range(12))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_broken_member_is_unreadable(tmp_path: Path) -> None:
    source = Tar(make(tmp_path / "a.tar", [("a.png", png(1)[:-30]), ("b.png", png(2))]))
    with pytest.raises(Unreadable, match="truncated"):
        source.read(0)
    assert source.read(1)["image"][0, 0, 0] == 2


@pytest.mark.parametrize(
    ("mode", "name"), [("w:gz", "a.tar.gz"), ("w:gz", "a.tar"), ("w:bz2", "a.tar"), ("w:xz", "a.tar")]
)
def test_a_compressed_tar_cannot_be_read_in_place(tmp_path: Path, mode: Mode, name: str) -> None:
    path = make(tmp_path / name, MEMBERS, mode)
    with pytest.raises(UserError, match=r"is compressed \(\w+\), so its images cannot be read one by one: unpack it"):
        Tar(path)


def test_what_is_no_whole_tar_is_an_error(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tar", MEMBERS)
    whole = path.read_bytes()
    for content in (b"", b"no tar at all" * 100, whole[: len(MEMBERS[0][1]) // 2 + 512]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"is not a whole tar file .*: make or fetch it again"):
            Tar(path)


def test_a_forged_negative_length_does_not_run_in_circles(tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("a.png").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xf0\x00"  # -4096 in base 256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(header) * 4 + bytes(1024))
    with pytest.raises(UserError, match="not a whole tar file"):
        Tar(path)


def test_a_tar_without_images_says_which_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no images"):
        Tar(make(tmp_path / "a.tar", [("notes.txt", b"text")]))


def test_cifar10_as_a_tar(real_data: Path) -> None:
    source = Tar(real_data / "cifar10/test.tar")
    assert len(source) == 10_000
    assert source.classes[:3] == ("airplane", "automobile", "bird")
    assert source.labels is not None
    assert source.labels.bincount().tolist() == [1000] * 10
    assert source.probe.size == (32, 32)
    with tarfile.open(real_data / "cifar10/test.tar") as tar:
        member = tar.extractfile(source.id(4321))
        assert member is not None
        with Image.open(member) as image:
            assert (source.read(4321)["image"].permute(1, 2, 0).numpy() == np.array(image)).all()
