"""A row counts as done where today's flags, preset and defaults come to the settings that it came from."""

from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from manyview.config import AnyConfig
from manyview.data import open_source
from manyview.errors import UserError
from manyview.evaluate.knn import Knn
from manyview.methods import find
from manyview.reproduce import RECIPES, Setting, resolved
from manyview.reproduce.job import Store, Training
from manyview.reproduce.looks import Accuracy
from manyview.reproduce.resolved import Images, described, differing, images_in_words, of_config, of_fields, resolve
from manyview.run import presets
from manyview.run.flags import parse_run

IMAGES = "50000/10/32"
COLUMNS = ("lam", "seed", "steps", "knn", "linear", "seconds")


@pytest.fixture(autouse=True)
def fresh() -> None:
    resolve.cache_clear()


def job(**changes: str) -> Training:
    [first, *_] = RECIPES["jcl-fig2b"].jobs(Setting("laptop", "CIFAR", (0,)), Store(Path("nowhere"), "jcl-fig2b"))
    assert isinstance(first, Training)
    words = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", value)]
    return replace(first, words=(*first.words, *words))


def done(tmp_path: Path) -> Store:
    store = Store(tmp_path, "jcl-fig2b", "", IMAGES)
    store.add(job(), COLUMNS, [{**job().keys, "knn": "1", "linear": "1", "seconds": "1"}])
    assert store.rows_of(job())
    return store


def test_a_changed_preset_cannot_pass_for_an_old_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, small = done(tmp_path), presets.small

    def with_more_decay(*args: Any, **more: Any) -> AnyConfig:
        config = small(*args, **more)
        return replace(config, optim=replace(config.optim, weight_decay=0.5))

    monkeypatch.setattr(presets, "small", with_more_decay)
    resolve.cache_clear()
    assert store.rows_of(job()) == []
    assert not store.adopt(job(), COLUMNS)
    assert store.outdated([job()]) == ["weight_decay 0.0001, now 0.5"]


def test_a_flag_that_says_what_the_preset_says_changes_nothing(tmp_path: Path) -> None:
    store = done(tmp_path)
    assert store.rows_of(job(queue_size="4096"))  # an eighth of the set, at most 4,096
    assert store.outdated([job(queue_size="1024")]) == ["queue_size 4096, now 1024"]


def test_presets_follow_the_images_and_so_do_rows(tmp_path: Path) -> None:
    assert job().settings("10000/10/32")["queue_size"] == (1250, False)
    assert replace(done(tmp_path), images="10000/10/32").rows_of(job()) == []


def test_what_does_not_change_the_numbers_does_not_count(tmp_path: Path) -> None:
    store = done(tmp_path)
    assert store.rows_of(job(keep="3", checkpoint_every="7", workers="2", device="cpu"))


def test_another_probe_cannot_pass_for_an_old_row(tmp_path: Path) -> None:
    [look] = job().looks
    assert isinstance(look, Accuracy)
    other = replace(job(), looks=(replace(look, protocols=(Knn(k=3), look.protocols[1])),))
    assert done(tmp_path).outdated([other]) == ["looks.0.protocols.0.k 200, now 3"]


@dataclass(frozen=True)
class Before:
    lr: float = 0.1
    steps: tuple[float, ...] = (0.5,)


Later: Any = make_dataclass("Later", [("lr", float, 0.1), ("steps", Any, (0.5,)), ("warm", float, field(default=0.0))])


def test_a_field_that_comes_later_counts_only_with_another_value_than_its_default() -> None:
    stored = {name: value for name, (value, _) in of_fields(Before()).items()}
    assert stored == {"lr": 0.1, "steps": [0.5]}
    assert differing(stored, of_fields(Later())) == ""
    assert differing(stored, of_fields(Later(warm=1.0))) == "warm 1.0, not known then"
    assert differing(stored, of_fields(Later(lr=0.2))) == "lr 0.1, now 0.2"  # whatever the default is by now
    assert differing({**stored, "old": 1}, of_fields(Before())) == "old 1, not known now"


def test_a_part_is_told_by_its_class_and_its_fields() -> None:
    assert described("looks", (Before(),)) == {
        "looks": (1, False), "looks.0": ("Before", False), "looks.0.lr": (0.1, True), "looks.0.steps": ([0.5], True),
    }  # fmt: skip
    stored = {name: value for name, (value, _) in described("looks", (Before(),)).items()}
    assert differing(stored, described("looks", (Before(), Before()))).startswith("looks 1, now 2; ")
    assert differing(stored, described("looks", (Later(),))) == "looks.0 Before, now Later"


@pytest.mark.parametrize("name", ["jcl-fig2b", "cacr-fig3", "cmc-table1", "cmc-table4"])
def test_settings_are_resolved_as_a_run_on_these_images_would(name: str, tmp_path: Path) -> None:
    setting = Setting("laptop", "scenes:400", (0,), quick=True)
    source = open_source("scenes:400", split="pretrain")
    for each in RECIPES[name].jobs(setting, Store(tmp_path, name)):
        assert isinstance(each, Training)
        flags = [*each.words[1:], "--data", "scenes:400", "--out", str(tmp_path)]
        config = parse_run(find(each.words[0]), flags).config
        assert each.trained(images_in_words(source)) == of_config(each.words[0], config)


def test_images_are_told_by_their_numbers() -> None:
    stand_in = Images(IMAGES, at_most=5000)
    assert (len(stand_in), len(stand_in.classes), stand_in.median_side) == (5000, 10, 32)
    assert images_in_words(Images(IMAGES)) == IMAGES
    with pytest.raises(UserError, match=r"'50000/10', which are not SAMPLES/CLASSES/SIDE: .*move the file away"):
        resolved.Images("50000/10")
