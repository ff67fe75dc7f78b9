from pathlib import Path

import pytest

from manyview.atomic import locked, replacing


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    for content in (b"first", b"second"):
        with replacing(path) as file:
            file.write(content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_until_it_is_whole_the_old_content_stands(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"


def test_a_failure_leaves_nothing_but_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_one_at_a_time_is_inside(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with locked(path) as first, locked(path, wait=False) as second, locked(tmp_path / "other", wait=False) as other:
        assert (first, second, other) == (True, False, True)
    with locked(path, wait=False) as again:
        assert again
