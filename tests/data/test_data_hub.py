"""Sets on the Hugging Face hub: what is fetched, which commit is kept, and what goes wrong on the way."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hubserver import Hub, serving
from PIL import Image

from manyview.data import NoTestSplit, open_source
from manyview.data import hub as hub_module
from manyview.data.hub import pinned
from manyview.errors import UserError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'manyview[parquet]'")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is a new process on a new machine."""
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_module, "_fetched", {})


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serving(tmp_path / "hub") as hub:
        yield hub


def rows(count: int, start: int = 0) -> bytes:
    """A parquet file of images and labels."""
    images = []
    for i in range(count):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (start + i, 0, 0)).save(file, "PNG")
        images.append({"bytes": file.getvalue(), "path": None})
    result = io.BytesIO()
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"image": pa.array(images, kind), "label": [i % 2 for i in range(count)]}), result)
    return result.getvalue()


FILES = {
    "README.md": b"# Flowers",
    "data/train-00000-of-00002.parquet": rows(6),
    "data/train-00001-of-00002.parquet": rows(6, 6),
    "data/test-00000-of-00001.parquet": rows(4, 50),
}


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub_module._fetched.clear()


def test_a_set_is_fetched_once_with_its_splits_and_its_commit(hub: Hub) -> None:
    commit = hub.push("ada/flowers", FILES)
    train, test = open_source("hf:ada/flowers"), open_source("hf:ada/flowers", split="test")
    assert train.name == test.name == f"hf:ada/flowers@{commit}"
    assert (len(train), len(test), train.classes) == (12, 4, ("0", "1"))
    assert train.id(7) == "data/train-00001-of-00002.parquet:1"
    assert not any(path.endswith("README.md") for path in hub.asked)
    hub.asked.clear()
    assert open_source(train.name).fingerprint == train.fingerprint
    assert hub.asked == []


def test_a_commit_stays_when_the_branch_moves_on(hub: Hub) -> None:
    first = hub.push("ada/flowers", FILES)
    hub.push("ada/flowers", {"train.parquet": rows(3)}, branch="small")
    spec = pinned("hf:ada/flowers")
    assert spec == f"hf:ada/flowers@{first}"
    second = hub.push("ada/flowers", FILES | {"data/test-00000-of-00001.parquet": rows(9)})
    assert pinned("hf:ada/flowers") == f"hf:ada/flowers@{second}"
    assert pinned(spec) == spec
    assert [len(open_source(each, split="test")) for each in (spec, "hf:ada/flowers")] == [4, 9]
    assert len(open_source("hf:ada/flowers@small")) == 3
    with pytest.raises(NoTestSplit, match="has no test split"):
        open_source("hf:ada/flowers@small", split="test")


def test_other_words_are_no_sets_of_the_hub() -> None:
    assert [pinned(spec) for spec in ("scenes", "a/b", "cifar10:a")] == ["scenes", "a/b", "cifar10:a"]
    for spec in ("hf:", "hf:flowers", "hf:ada/flo wers", "hf:ada/flowers@", "hf:/ada/flowers", "hf:ada/../flowers/.."):
        with pytest.raises(UserError, match="names no set of the hub: use hf:OWNER/NAME"):
            open_source(spec)


def test_what_the_hub_converted_stands_in(hub: Hub) -> None:
    hub.push("ada/old", {"old.py": b"", "images.zip": b"PK"})
    converted = hub.push(
        "ada/old",
        {"default/train/0000.parquet": rows(5), "default/test/0000.parquet": rows(2)},
        branch="refs/convert/parquet",
    )
    assert pinned("hf:ada/old") == f"hf:ada/old@{converted}"
    assert [len(open_source("hf:ada/old", split=split)) for split in ("train", "test")] == [5, 2]


def test_of_several_sets_one_is_named_by_its_folder(hub: Hub) -> None:
    files = {f"{each}/train/0000.parquet": rows(count) for each, count in (("digits", 4), ("letters", 5))}
    commit = hub.push("ada/many", files)
    with pytest.raises(UserError, match=r"'hf:ada/many' holds 2 sets: .* hf:ada/many/digits, hf:ada/many/letters"):
        open_source("hf:ada/many")
    assert not any("resolve" in path for path in hub.asked)
    source = open_source("hf:ada/many/letters")
    assert (len(source), source.name) == (5, f"hf:ada/many/letters@{commit}")
    assert not any("digits" in path for path in hub.asked)
    with pytest.raises(UserError, match="has no parquet files and no tars"):
        open_source("hf:ada/many/figures")


def test_what_the_hub_converted_in_part_is_told(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.push("ada/old", {"images.zip": b"PK"})
    hub.push("ada/old", {"default/partial-train/0000.parquet": rows(2)}, branch="refs/convert/parquet")
    assert len(open_source("hf:ada/old")) == 2
    line = "of 'hf:ada/old' the hub has converted only a part into parquet files (partial-train)"
    assert capsys.readouterr().err.count(line) == 1


def tar(count: int) -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as file:
        for i in range(count):
            image = io.BytesIO()
            Image.new("RGB", (8, 8), (i, 0, 0)).save(image, "PNG")
            for name, data in ((f"{i}.png", image.getvalue()), (f"{i}.cls", b"%d" % (i % 2))):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
    return result.getvalue()


def test_tars_are_read_before_what_the_hub_made_of_them(hub: Hub) -> None:
    commit = hub.push("ada/tars", {"a-train-0.tar": tar(3), "a-train-1.tar": tar(4), "a-validation-0.tar": tar(2)})
    hub.push("ada/tars", {"default/partial-train/0000.parquet": rows(2)}, branch="refs/convert/parquet")
    train, test = open_source("hf:ada/tars"), open_source("hf:ada/tars", split="test")
    assert (len(train), len(test), train.name, train.classes) == (7, 2, f"hf:ada/tars@{commit}", ("0", "1"))
    assert train.id(3) == "a-train-1.tar/0.png"
    hub_module._fetched.clear()
    assert open_source(train.name).fingerprint == train.fingerprint


def test_other_formats_are_listed(hub: Hub) -> None:
    hub.push("ada/zips", {"README.md": b"", "a.zip": b"", "b.zip": b"", "LICENSE": b"", "metadata.parquet": rows(1)})
    with pytest.raises(
        UserError, match=r"only 2 .zip, 1 .md, 1 LICENSE, 1 .parquet: .*--local-dir DIR` and use --data"
    ):
        open_source("hf:ada/zips")


@pytest.mark.parametrize(
    ("why", "message"),
    [
        ("RepoNotFound", "is not on the hub, or is private: check the name, or log in with `hf auth login`"),
        ("GatedRepo", "is gated: accept its conditions on https://huggingface.co/datasets/ada/secret, then"),
        ("ServerOnFire", "cannot be fetched|cannot be reached"),
    ],
)
def test_closed_doors_are_one_line(hub: Hub, why: str, message: str) -> None:
    hub.push("ada/secret", FILES)
    hub.closed["ada/secret"] = why
    with pytest.raises(UserError, match=message) as raised:
        open_source("hf:ada/secret")
    assert "\n" not in str(raised.value)


def test_an_unknown_set_or_revision_is_one_line(hub: Hub) -> None:
    hub.push("ada/flowers", FILES)
    with pytest.raises(UserError, match="'hf:ada/flower' is not on the hub, or is private"):
        open_source("hf:ada/flower")
    for revision in ("v2", "0" * 40):
        with pytest.raises(UserError, match=f"has no revision {revision}: name a branch, a tag or a commit"):
            open_source(f"hf:ada/flowers@{revision}")


def test_offline_the_cache_is_enough(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.push("ada/flowers", FILES)
    hub.push("ada/old", {"images.zip": b"PK"})
    converted = hub.push("ada/old", {"default/train/0000.parquet": rows(5)}, branch="refs/convert/parquet")
    open_source("hf:ada/flowers")
    open_source("hf:ada/old")
    offline(monkeypatch)
    hub.asked.clear()
    assert len(open_source("hf:ada/flowers")) == 12
    assert pinned("hf:ada/flowers@main") == f"hf:ada/flowers@{commit}"
    assert pinned("hf:ada/old") == f"hf:ada/old@{converted}"
    assert hub.asked == []


def test_offline_without_the_cache_is_one_line(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.push("ada/flowers", FILES)
    open_source("hf:ada/flowers")
    missing = next((tmp_path / "hub").rglob("data/train-00001*"))
    missing.unlink()
    offline(monkeypatch)
    for spec in ("hf:ada/flowers", f"hf:ada/flowers@{commit}"):
        with pytest.raises(UserError, match=r"lacks 1 of the 2 files|is not in the hub's cache, or not as a whole"):
            open_source(spec)
    shutil.rmtree(tmp_path / "hub")
    for spec in ("hf:ada/flowers", f"hf:ada/flowers@{commit}"):
        with pytest.raises(
            UserError, match="is not in the hub's cache, or not as a whole, and the hub cannot be reached"
        ):
            open_source(spec)


def test_a_hub_that_does_not_answer_is_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="is not in the hub's cache, or not as a whole, and the hub cannot be reached"):
        open_source("hf:ada/flowers")
