"""The index of a tar is right, or an error; it is made once, and never believed when it is damaged."""

import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from manyview.data import tarindex
from manyview.data.tarindex import NO_LABEL, WRONG_LABEL, Index, Shard, find_images, indexes
from manyview.errors import UserError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/tars"


def make(path: Path, members: Sequence[tuple[str, bytes]], format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


MEMBERS = [("b.png", b"image b" * 100), ("b.cls", b"3"), ("a.jpg", b"image a"), ("a.json", b"{}"), ("a.cls", b"12\n")]


def find(path: Path) -> Index:
    return find_images(Shard.of(path))


def index_of(path: Path) -> Index:
    (index,) = indexes([Shard.of(path)], "set")
    return index


def same(one: Index, other: Index) -> bool:
    return (
        one.names == other.names
        and np.array_equal(one.places, other.places)
        and np.array_equal(one.labels, other.labels)
    )


def never(*_: object, **__: object) -> None:
    pytest.fail("a tar was read")


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_places_and_labels(tmp_path: Path, format: int) -> None:
    path = make(tmp_path / "a.tar", MEMBERS, format)
    index = find(path)
    assert index.names == b"a.jpg\0b.png\0"
    assert index.labels.tolist() == [12, 3]
    content = path.read_bytes()
    assert [content[offset : offset + length] for offset, length in index.places] == [b"image a", b"image b" * 100]


def test_the_key_ends_at_the_first_dot_of_the_base_name(tmp_path: Path) -> None:
    members = ["v1.0/x.left.png", "v1.0/x.right.png", "v1.0/y.png", "x.png"]
    labels = [("v1.0/x.CLS", b"7"), ("v1.0/y.a.cls", b"8"), ("v1.cls", b"9"), ("x.cls", b"1"), ("x.cls", b"2")]
    index = find(make(tmp_path / "a.tar", [*labels, *((name, b"") for name in members)]))
    assert index.names.split(b"\0")[:-1] == [name.encode() for name in members]
    assert index.labels.tolist() == [7, 7, NO_LABEL, 2]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        *((b"0", 0), (b" 007 \n", 7), (b"9" * 18, 10**18 - 1)),
        *((text, WRONG_LABEL) for text in (b"", b"cat", b"-1", b"1.0", b"1 2", b"\xc2\xb2", b"9" * 19, b" " * 9999)),
    ],
)
def test_a_label_is_a_whole_number(tmp_path: Path, text: bytes, label: int) -> None:
    index = find(make(tmp_path / "a.tar", [("a.cls", text), ("a.png", b"")]))
    assert index.labels.tolist() == [label]


def test_contents_are_passed_over(tmp_path: Path) -> None:
    """An image of 64 GiB, most of it a hole in the file: reading it would take minutes."""
    path = tmp_path / "a.tar"
    header = tarfile.TarInfo("a.png")
    header.size = 64 << 30
    with path.open("wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        file.seek(header.size, os.SEEK_CUR)
        file.write(bytes(1024))
    assert find(path).places.tolist() == [[512, 64 << 30]]


def test_an_index_is_made_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [make(tmp_path / f"{i}.tar", [*MEMBERS, (f"{i}.png", b"")]) for i in range(3)]
    paths.append(make(tmp_path / "empty.tar", []))
    shards = [Shard.of(path) for path in paths]
    first = indexes(shards, "set")
    assert len(list(cache.iterdir())) == 4
    monkeypatch.setattr(tarfile, "open", never)
    second = indexes(shards[::-1], "set")
    assert all(map(same, first, second[::-1]))
    assert [len(index) for index in first] == [3, 3, 3, 0]


def test_only_what_has_changed_is_indexed_again(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [make(tmp_path / f"{i}.tar", MEMBERS) for i in range(3)]
    indexes([Shard.of(path) for path in paths], "set")
    make(paths[1], [("new.png", b"")])
    os.utime(paths[2], ns=(0, 0))
    read: list[str] = []

    def recorded(shard: Shard, *, show: bool) -> Index:
        read.append(shard.path.name)
        return find_images(shard, show=show)

    monkeypatch.setattr(tarindex, "find_images", recorded)
    found = indexes([Shard.of(path) for path in paths], "set")
    assert read == ["1.tar", "2.tar"]
    assert found[1].names == b"new.png\0"
    assert len(list(cache.iterdir())) == 3, "the outdated ones are replaced"


def forged(shard: Shard, **changes: object) -> bytes:
    """An index that vouches for itself, but for the changes."""
    index = find_images(shard)
    tensors = {
        "names": np.frombuffer(index.names, np.uint8), "places": index.places, "labels": index.labels,
        "others": index.others,
    } | changes  # fmt: skip
    names, *rest = (np.asarray(tensors[name]) for name in ("names", "places", "labels", "others"))
    content = Index(names.tobytes(), *rest)
    return safetensors.numpy.save(tensors, {"manyview-tar-index": tarindex._mark(shard, content)})  # type: ignore[arg-type]


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGE: dict[str, Callable[[Shard, bytes], bytes]] = {
    "empty": lambda _, __: b"",
    "rubbish": lambda _, __: b"rubbish" * 1000,
    "cut short": lambda _, content: content[:-1],
    "a bit of a label": lambda _, content: flipped(content, content.index((12).to_bytes(8, "little"))),
    "a bit of a name": lambda _, content: flipped(content, content.index(b"a.jpg")),
    "other tensors": lambda _, __: safetensors.numpy.save({"names": np.zeros(1)}),
    "another format": lambda _, content: content.replace(b"[2, ", b"[0, "),
    "no mark": lambda _, content: content.replace(b"manyview-tar-index", b"manyview-tar-xxxxx"),
    "a negative offset": lambda shard, _: forged(shard, places=np.array([[-1, 1], [1, 1]])),
    "beyond the end": lambda shard, _: forged(shard, places=np.array([[0, shard.size + 1], [1, 1]])),
    "offset + length overflows": lambda shard, _: forged(shard, places=np.array([[2**62, 2**62], [1, 1]])),
    "another field beyond the end": lambda shard, _: forged(shard, others=np.full((2, 3, 2), shard.size)),
    "offset + length of another field overflows": lambda shard, _: forged(shard, others=np.full((2, 3, 2), 2**62)),
    "a field too many": lambda shard, _: forged(shard, others=np.full((2, 4, 2), -2)),
    "a place too many": lambda shard, _: forged(shard, places=np.array([[1, 1]] * 3)),
    "a flat list of places": lambda shard, _: forged(shard, places=np.array([1, 1])),
    "places of another kind": lambda shard, _: forged(shard, places=np.array([[1.0, 1.0]] * 2)),
    "a label too few": lambda shard, _: forged(shard, labels=np.array([1])),
    "an unknown label": lambda shard, _: forged(shard, labels=np.array([1, -3])),
    "a name too few": lambda shard, _: forged(shard, names=np.frombuffer(b"a.jpg\0", np.uint8)),
    "an open end": lambda shard, _: forged(shard, names=np.frombuffer(b"a.jpg\0b.png\0c", np.uint8)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_index_is_made_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Shard, bytes], bytes]
) -> None:
    path = make(tmp_path / "a.tar", MEMBERS)
    expected = index_of(path)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    damaged = damage(Shard.of(path), whole)
    assert damaged != whole
    kept.unlink()  # what is mapped must not change
    kept.write_bytes(damaged)
    assert same(index_of(path), expected)
    assert kept.read_bytes() == whole
    monkeypatch.setattr(tarfile, "open", never)
    assert same(index_of(path), expected)


def test_a_forged_index_would_be_read_if_it_were_right(tmp_path: Path, cache: Path) -> None:
    """The above must fail for the reason that each names."""
    path = make(tmp_path / "a.tar", MEMBERS)
    index_of(path)
    (kept,) = cache.iterdir()
    kept.unlink()
    kept.write_bytes(forged(Shard.of(path), labels=np.array([5, 6])))
    assert index_of(path).labels.tolist() == [5, 6]


def test_an_index_is_data_alone(tmp_path: Path, cache: Path) -> None:
    index_of(make(tmp_path / "a.tar", MEMBERS))
    (kept,) = cache.iterdir()
    length = int.from_bytes(kept.read_bytes()[:8], "little")
    assert json.loads(kept.read_bytes()[8 : 8 + length]).keys() == {
        "__metadata__",
        "names",
        "places",
        "labels",
        "others",
    }


def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "file/cache"))
    shards = [Shard.of(make(tmp_path / f"{i}.tar", MEMBERS)) for i in range(3)]
    assert [len(index) for index in indexes(shards, "shards/")] == [2, 2, 2]
    assert capsys.readouterr().err == (
        "the index of 'shards/' cannot be kept for later runs (Not a directory): "
        "set MANYVIEW_CACHE to a directory that can be written\n"
    )


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarindex, "_PARALLEL_BYTES", 0)
    monkeypatch.setattr(tarindex, "processors", lambda: 2)


@pytest.mark.usefixtures("two_workers")
def test_worker_processes_find_the_same(tmp_path: Path) -> None:
    shards = [Shard.of(make(tmp_path / f"{i}.tar", [*MEMBERS, (f"{i}.png", b"")])) for i in range(5)]
    assert all(map(same, indexes(shards, "set"), map(find_images, shards)))


@pytest.mark.usefixtures("two_workers")
def test_a_worker_process_reports_which_tar_is_broken(tmp_path: Path, cache: Path) -> None:
    shards = [Shard.of(make(tmp_path / f"{i}.tar", MEMBERS)) for i in range(4)]
    shards[2].path.write_bytes(shards[2].path.read_bytes()[:700])
    with pytest.raises(UserError, match=r"2\.tar' is not a whole tar file"):
        indexes(shards, "set")
    assert len(list(cache.iterdir())) == 2, "what was found before is kept"


def test_a_tar_that_breaks_off_anywhere_is_refused(tmp_path: Path) -> None:
    """tarfile itself takes a cut at or in a header for the end."""
    path = make(tmp_path / "a.tar", MEMBERS, tarfile.USTAR_FORMAT)
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    end += -end % 512
    for length in [*range(1, end, 97), *range(512, end, 512), end]:
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"^'.*a.tar' is not a whole tar file \(.+\): make or fetch it again$"):
            find(path)
    path.write_bytes(whole[: end + 512])
    assert len(find(path)) == 2


def test_damage_in_the_middle_is_no_end(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tar", MEMBERS, tarfile.USTAR_FORMAT)
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"b.cls")] ^= 1
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"it breaks off or is damaged at byte 1,536"):
        find(path)


def test_joined_tars_are_refused(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a.tar", MEMBERS), make(tmp_path / "b.tar", [("c.png", b"")])
    one.write_bytes(one.read_bytes() + other.read_bytes())
    with pytest.raises(UserError, match="goes on behind its end, as tars joined by cat do: keep them as separate tars"):
        find(one)


def test_a_tar_that_is_being_written_is_refused(tmp_path: Path) -> None:
    shard = Shard.of(make(tmp_path / "a.tar", MEMBERS))
    os.utime(shard.path, ns=(0, 0))
    with pytest.raises(UserError, match="changed while it was read: wait until it is written"):
        find_images(shard)


def test_a_zero_byte_in_a_name_is_refused(tmp_path: Path) -> None:
    """It would be two names to us."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("a.png")
        info.pax_headers = {"path": "a\0b.png"}
        tar.addfile(info)
    with pytest.raises(UserError, match="zero byte in its name"):
        find(path)


def test_a_tar_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(No such file or directory\): check the path"):
        Shard.of(tmp_path / "a.tar")
