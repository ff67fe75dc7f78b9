"""Files of results: a row for each finished job, once."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from manyview.errors import UserError
from manyview.reproduce.job import Job, Row, alone, place
from manyview.reproduce.page import _with_code
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store

COLUMNS = ("keys", "seed", "linear")


@dataclass(frozen=True)
class Fixed(Job):
    @property
    def identity(self) -> str:
        return f"fixed {dict(self.keys)}"

    @property
    def expected_seconds(self) -> float:
        return 1.0

    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        raise AssertionError("a store does no work")


def test_rows_are_kept_once_and_found_by_their_keys(tmp_path: Path) -> None:
    store, job = Store(tmp_path, "recipe"), Fixed({"keys": "5", "seed": "0"})
    assert store.rows_of(job) == []
    for _ in range(2):
        store.add(job, COLUMNS, [{**job.keys, "linear": "47.20"}])
    store.add(Fixed({"keys": "5", "seed": "1"}), COLUMNS, [{"keys": "5", "seed": "1", "linear": "48.00"}])
    assert (tmp_path / "recipe.csv").read_text() == "keys,seed,linear\n5,0,47.20\n5,1,48.00\n"
    assert store.rows_of(job) == [{"keys": "5", "seed": "0", "linear": "47.20"}]


def test_rows_of_other_images_are_kept_and_not_taken_for_these(tmp_path: Path) -> None:
    job, stores = Fixed({"keys": "5", "seed": "0"}), [Store(tmp_path, "recipe", "", f"50000/{n}") for n in (10, 100)]
    for store, linear in zip(stores, ("47.20", "21.00"), strict=True):
        assert store.rows_of(job) == []
        store.add(job, COLUMNS, [{**job.keys, "linear": linear}])
    assert (tmp_path / "recipe.csv").read_text() == "keys,seed,linear,images\n5,0,47.20,50000/10\n5,0,21.00,50000/100\n"
    assert [store.rows_of(job)[0]["linear"] for store in stores] == ["47.20", "21.00"]
    assert list(stores[0].rows()[0]) == list(COLUMNS)
    assert stores[0].sets() == ["50000/10", "50000/100"]


def test_a_file_that_does_not_know_its_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipe.csv").write_text("keys,seed,linear\n5,0,47.20\n")
    with pytest.raises(UserError, match=r"recipe\.csv does not say .*: add the column images, as 50000/10"):
        Store(tmp_path, "recipe", "", "50000/10").rows()
    assert len(Store(tmp_path, "recipe").rows()) == 1  # where steps are weighed there are none


def test_other_scales_and_the_embedded_set_have_files_of_their_own(tmp_path: Path) -> None:
    settings = [Setting("laptop", data, ()) for data in ("CIFAR", "scenes:64", "scenes_mine")]
    names = [Store(tmp_path, "recipe", each.suffix).path("trials").name for each in settings]
    assert names == ["recipe-trials.csv", "recipe-trials-scenes.csv", "recipe-trials.csv"]
    assert Setting("paper", "CIFAR", ()).suffix == "-paper"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipe.csv").write_text("keys,seed,linear\n5,0,47.20\n5,1\n")
    with pytest.raises(UserError, match=r"recipe\.csv is damaged in line 3"):
        Store(tmp_path, "recipe").rows()


def test_one_at_a_time_works_in_a_place(tmp_path: Path) -> None:
    with alone(tmp_path) as first, alone(tmp_path) as second:
        assert (first, second) == (True, False)
    with alone(tmp_path) as again:
        assert again


def test_a_place_depends_on_the_work_and_the_images(tmp_path: Path) -> None:
    job, cifar = Fixed({"seed": "0"}), Setting("laptop", "CIFAR", (0,))
    assert place(job, cifar, tmp_path) == place(job, Setting("laptop", "CIFAR", (0, 1)), tmp_path)
    others = [place(Fixed({"seed": "1"}), cifar, tmp_path), place(job, Setting("laptop", "scenes", (0,)), tmp_path)]
    assert len({place(job, cifar, tmp_path), *others}) == 3


def test_names_in_the_words_of_a_recipe_are_code_on_its_page_and_nothing_else_is_markup() -> None:
    assert _with_code("with `tiny` for <b>, at `lr 0.1`") == (
        "with <code>tiny</code> for &lt;b&gt;, at <code>lr 0.1</code>"
    )
