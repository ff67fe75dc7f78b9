"""Which tars a directory or a pattern names, and what is said when it names none."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from manyview.data.patterns import is_tar, tars_in, tars_matching
from manyview.errors import UserError


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four shards, and what may lie beside them; also the working directory's `shards`."""
    monkeypatch.chdir(tmp_path)
    numbered = [f"train-{i:03d}.tar" for i in range(8, 12)]
    return touch(tmp_path / "shards", *numbered, "train-008.json", "._train-008.tar", "notes.txt")


ALL = [f"train-{i:03d}.tar" for i in range(8, 12)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("train-*.tar", ALL),
        ("*.tar", ALL),
        ("train-00?.tar", ALL[:2]),
        ("train-0[01]*.tar", ALL),
        ("train-{008..011}.tar", ALL),
        ("train-{011..009}.tar", ALL[1:]),
        ("train-0{08..10}.tar", ALL[:3]),
        ("train-0{10..11}.tar", ALL[2:]),
        ("train-{008,011}.tar", [ALL[0], ALL[3]]),
        ("train-0{0{8,9},1{0..1}}.tar", ALL),
        ("train-{00,01}*.tar", ALL),
        ("{train-008,train-0*}.tar", ALL),
    ],
)
def test_patterns_name_tars(shards: Path, pattern: str, expected: Sequence[str]) -> None:
    for spec in (f"shards/{pattern}", f"{shards}/{pattern}", f"./shards//{pattern}"):
        found = tars_matching(spec)
        assert sorted(found) == list(expected)
        assert all(path.samefile(shards / name) for name, path in found.items())


def test_a_pattern_may_span_directories_and_names_stay_apart(tmp_path: Path) -> None:
    touch(tmp_path, "a/0.tar", "b/0.tar", "b/deep/1.tar")
    assert sorted(tars_matching(f"{tmp_path}/{{a,b}}/0.tar")) == ["a/0.tar", "b/0.tar"]
    assert sorted(tars_matching(f"{tmp_path}/**/*.tar")) == ["a/0.tar", "b/0.tar", "b/deep/1.tar"]


def test_names_do_not_depend_on_which_tars_are_there(tmp_path: Path) -> None:
    """Or the ids of all samples would change when a directory is added."""
    touch(tmp_path, "a/0.tar")
    assert list(tars_matching(f"{tmp_path}/*/*.tar")) == ["a/0.tar"]


def test_the_home_directory_may_be_abbreviated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(touch(tmp_path, "a.tar")))
    assert tars_matching("~/*.tar") == {"a.tar": tmp_path / "a.tar"}


@pytest.mark.parametrize("pattern", ["val-*.tar", "train-{008..}.tar", "train-{a..b}.tar", "none/*.tar"])
def test_a_pattern_that_matches_nothing(shards: Path, pattern: str) -> None:
    expected = f"'shards/{pattern}' matches no file: check the path; patterns are written as 'a-*.tar' or"
    with pytest.raises(UserError, match=re.escape(expected)):
        tars_matching(f"shards/{pattern}")


@pytest.mark.parametrize("last", ["012", "999999999999"])
def test_the_missing_shard_of_a_range_is_named(shards: Path, last: str) -> None:
    with pytest.raises(UserError) as error:
        tars_matching(f"shards/train-{{8..{last}}}.tar" if len(last) > 3 else f"shards/train-{{008..{last}}}.tar")
    missing = "shards/train-8.tar" if len(last) > 3 else "shards/train-012.tar"
    assert f"names '{missing}', which does not exist: fetch or make it, or shorten the range" in str(error.value)


def test_a_pattern_names_files_of_one_kind(shards: Path) -> None:
    with pytest.raises(
        UserError, match=r"matches 'shards/\S+', which is no .tar: patterns are for tars and parquet files, as"
    ):
        tars_matching("shards/*")
    touch(shards, "sub.tar/a.png")
    with pytest.raises(UserError, match=r"matches 'shards/sub.tar', which is no .tar"):
        tars_matching("shards/s*.tar")


def test_a_directory_of_tars(shards: Path) -> None:
    assert tars_in(shards) == {name: shards / name for name in ALL}
    assert tars_in(touch(shards.parent / "compressed", "a.tar.gz")).keys() == {"a.tar.gz"}


def test_a_directory_of_images_holds_no_shards(tmp_path: Path) -> None:
    assert tars_in(touch(tmp_path, "cat/1.png", "cat/2.png")) == {}
    assert tars_in(touch(tmp_path, "as-downloaded.tgz")) == {}


def test_tars_and_images_in_one_directory_are_refused(shards: Path) -> None:
    touch(shards, "cat/1.png")
    expected = (
        f"'{shards}' holds tars (train-008.tar) and loose images (cat/1.png): "
        f"use '{shards}/*.tar' for the tars, or move them away for the images"
    )
    with pytest.raises(UserError, match=f"^{re.escape(expected)}$"):
        tars_in(shards)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list anything")
def test_a_directory_that_cannot_be_listed(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    with pytest.raises(UserError, match="cannot be listed"):
        tars_in(tmp_path)
    tmp_path.chmod(0o700)


def test_tars_are_told_by_their_ending() -> None:
    tars = ("a.tar", "a.b.TAR", "a.tar.gz", "a.tgz", "a.tar.zst", "a.txz")
    assert all(is_tar(name) for name in tars)
    assert not any(is_tar(name) for name in ("tar", "a.tar.json", "a.gz", "a.tar/b.png", "start"))
