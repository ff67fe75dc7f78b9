"""Files of results: a row for each finished job, once."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from manyview.errors import UserError
from manyview.reproduce.job import SETTINGS, Job, Row, Store, digest, place
from manyview.reproduce.page import paragraph
from manyview.reproduce.resolved import Resolved
from manyview.reproduce.setting import Setting

COLUMNS = ("keys", "seed", "linear")


@dataclass(frozen=True)
class Fixed(Job):
    what: str = field(default="", kw_only=True)
    more: str = field(default="", kw_only=True)

    @property
    def identity(self) -> str:
        return f"{self.what or dict(self.keys)} {self.more}"

    def settings(self, images: str | None) -> Resolved:
        return {"asked": (self.what, False), "more": (self.more, False)}

    @property
    def digest(self) -> str:
        return digest({"asked": self.what, "more": self.more})

    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        raise AssertionError("a store does no work")


def test_rows_are_kept_once_and_found_by_their_keys(tmp_path: Path) -> None:
    store, job, other = Store(tmp_path, "recipe"), Fixed({"keys": "5", "seed": "0"}), Fixed({"keys": "5", "seed": "1"})
    assert store.rows_of(job) == []
    for _ in range(2):
        store.add(job, COLUMNS, [{**job.keys, "linear": "47.20"}])
    store.add(other, COLUMNS, [{**other.keys, "linear": "48.00"}])
    assert (tmp_path / "recipe.csv").read_text() == (
        f"keys,seed,linear,run\n5,0,47.20,{job.digest}\n5,1,48.00,{other.digest}\n"
    )
    assert store.rows_of(job) == [{"keys": "5", "seed": "0", "linear": "47.20"}]


def test_rows_of_other_images_are_kept_and_not_taken_for_these(tmp_path: Path) -> None:
    job, stores = Fixed({"keys": "5", "seed": "0"}), [Store(tmp_path, "recipe", "", f"50000/{n}/32") for n in (10, 100)]
    for store, linear in zip(stores, ("47.20", "21.00"), strict=True):
        assert store.rows_of(job) == []
        assert not store.adopt(job, COLUMNS)
        store.add(job, COLUMNS, [{**job.keys, "linear": linear}])
    assert (tmp_path / "recipe.csv").read_text() == (
        f"keys,seed,linear,run,images\n5,0,47.20,{job.digest},50000/10/32\n5,0,21.00,{job.digest},50000/100/32\n"
    )
    assert [store.rows_of(job)[0]["linear"] for store in stores] == ["47.20", "21.00"]
    assert list(stores[0].rows()[0]) == list(COLUMNS)
    assert stores[0].sets() == ["50000/10/32", "50000/100/32"]


def test_rows_that_came_from_other_settings_do_not_count(tmp_path: Path) -> None:
    store, job = Store(tmp_path, "recipe", "", "50000/10/32"), Fixed({"keys": "5", "seed": "0"})
    store.add(job, COLUMNS, [{**job.keys, "linear": "47.20"}])
    assert store.outdated([job]) == []
    changed = Fixed(job.keys, more="--lr 1")
    assert store.rows_of(changed) == []
    assert store.outdated([changed]) == ["more , now --lr 1"]
    store.add(changed, COLUMNS, [{**job.keys, "linear": "10.00"}])
    assert [store.rows_of(each)[0]["linear"] for each in (job, changed)] == ["47.20", "10.00"]


def test_what_another_recipe_has_done_and_measured_is_known_here_too(tmp_path: Path) -> None:
    first, second = (Store(tmp_path, name, "", "50000/10/32") for name in ("first", "second"))
    first.add(Fixed({"seed": "0"}, what="a run"), ("seed", "linear"), [{"seed": "0", "linear": "47.20"}])
    other_seed = Fixed({"lam": "4", "seed": "1"}, what="a run")
    assert not second.adopt(other_seed, ("lam", "seed", "linear"))
    job = Fixed({"lam": "4", "seed": "0"}, what="a run")
    assert not second.adopt(job, ("lam", "seed", "linear", "entropy"))  # nobody looked at that
    (tmp_path / "a.csv").write_text("of another kind\n")
    (tmp_path / "b.csv").write_bytes(b"caf\xe9\n")
    (tmp_path / "c.csv").mkdir()
    assert second.adopt(job, ("lam", "seed", "linear"))
    assert second.rows_of(job) == [{"lam": "4", "seed": "0", "linear": "47.20"}]
    assert not second.adopt(Fixed({"lam": "4", "seed": "1"}, what="another run"), ("lam", "seed", "linear"))
    on_scenes = Store(tmp_path, "first", "-scenes", "50000/10/32")  # as many, and not the same ones
    assert not on_scenes.adopt(job, ("lam", "seed", "linear"))
    weighed = Store(tmp_path, "weighed")
    assert not weighed.adopt(job, ("lam", "seed", "linear"))  # on another machine, maybe


def test_of_several_jobs_that_are_alike_one_is_taken(tmp_path: Path) -> None:
    first, second = (Store(tmp_path, name, "", "50000/10/32") for name in ("first", "second"))
    for batch in ("32", "64"):
        rows = [{"batch": batch, "seed": "0", "step": step, "linear": step} for step in ("1", "2")]
        first.add(Fixed({"batch": batch}, what="a run"), ("batch", "seed", "step", "linear"), rows)
    job = Fixed({"seed": "0"}, what="a run")
    assert second.adopt(job, ("seed", "step", "linear"))
    assert second.rows_of(job) == [{"seed": "0", "step": step, "linear": step} for step in ("1", "2")]


def test_a_file_with_other_columns_than_its_recipe_is_refused_before_anything_starts(tmp_path: Path) -> None:
    store, job = Store(tmp_path, "recipe", "", "50000/10/32"), Fixed({"keys": "5", "seed": "0"})
    store.check("", COLUMNS)
    store.add(job, COLUMNS, [{**job.keys, "linear": "47.20"}])
    store.check("", COLUMNS)
    with pytest.raises(
        UserError, match=r"recipe\.csv has the columns keys, seed, linear, run, images, .*: move it away"
    ):
        store.check("", ("lam", "seed", "linear"))


@pytest.mark.parametrize("column", ["run", "images"])
def test_a_file_without_what_tells_its_rows_apart_is_named(column: str, tmp_path: Path) -> None:
    columns = ["keys", "seed", "run", "images"]
    columns.remove(column)
    (tmp_path / "recipe.csv").write_text(f"{','.join(columns)}\n{','.join('1' for _ in columns)}\n")
    with pytest.raises(UserError, match=rf"recipe\.csv has no column '{column}', .*: move it away"):
        Store(tmp_path, "recipe", "", "50000/10/32").rows()


def test_other_scales_and_the_embedded_set_have_files_of_their_own(tmp_path: Path) -> None:
    settings = [Setting("laptop", data, ()) for data in ("CIFAR", "scenes:64", "scenes_mine")]
    names = [Store(tmp_path, "recipe", each.suffix).path("trials").name for each in settings]
    assert names == ["recipe-trials.csv", "recipe-trials-scenes.csv", "recipe-trials.csv"]
    assert Setting("paper", "CIFAR", ()).suffix == "-paper"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipe.csv").write_text("keys,seed,linear,run\n5,0,47.20,aa\n5,1\n")
    with pytest.raises(UserError, match=r"recipe\.csv is damaged in line 3"):
        Store(tmp_path, "recipe").rows()


def test_settings_that_are_damaged_or_lost_do_not_count(tmp_path: Path) -> None:
    store, job = Store(tmp_path, "recipe"), Fixed({"keys": "5", "seed": "0"})
    store.add(job, COLUMNS, [{**job.keys, "linear": "47.20"}])
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(UserError, match=r"settings\.json is damaged .*: restore it"):
        store.rows_of(job)
    (tmp_path / SETTINGS).unlink()
    assert store.rows_of(job) == []
    assert store.outdated([job]) == ["settings unknown"]


def test_a_place_depends_on_the_work_and_the_images(tmp_path: Path) -> None:
    job, cifar = Fixed({"seed": "0"}), Setting("laptop", "CIFAR", (0,))
    assert place(job, cifar, tmp_path) == place(job, Setting("laptop", "CIFAR", (0, 1)), tmp_path)
    others = [place(Fixed({"seed": "1"}), cifar, tmp_path), place(job, Setting("laptop", "scenes", (0,)), tmp_path)]
    assert len({place(job, cifar, tmp_path), *others}) == 3


def test_names_in_the_words_of_a_recipe_are_code_on_its_page_and_nothing_else_is_markup() -> None:
    assert paragraph("**Set-up:** with `tiny` for <b>, at `lr 0.1`") == (
        "<p><strong>Set-up:</strong> with <code>tiny</code> for &lt;b&gt;, at <code>lr 0.1</code></p>"
    )
