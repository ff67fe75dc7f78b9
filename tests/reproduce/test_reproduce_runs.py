"""Recipes from the command line to their pages: on few small images, with few small steps."""

import io
import re
import signal
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from running import Command

from manyview import reproduce
from manyview.atomic import locked
from manyview.cli import main
from manyview.errors import UserError
from manyview.evaluate.knn import Knn
from manyview.reproduce.job import Job, Row, Store, Training, place
from manyview.reproduce.looks import Accuracy, AccuracyCurve, EntropyCurve, HeldOut, Map, Spread
from manyview.reproduce.recipe import Recipe
from manyview.reproduce.resolved import Resolved
from manyview.reproduce.runner import Clock, carry_out, done_of
from manyview.reproduce.setting import Setting
from manyview.reproduce.setups import SetUp
from manyview.reproduce.sweep import Sweep
from manyview.reproduce.verdict import Comparison

ROLES = {"query": 1, "positive": 4, "negative": 23}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """train.tar and test.tar of noise, as CLASS/NAME."""
    directory = tmp_path_factory.mktemp("data")
    write_tar(directory / "train.tar", 48)
    write_tar(directory / "test.tar", 24)
    return str(directory)


def write_tar(path: Path, count: int) -> None:
    draws = np.random.default_rng(count)
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            buffer = io.BytesIO()
            Image.fromarray(draws.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(buffer, "png")
            member = tarfile.TarInfo(f"{'ab'[number % 2]}/{number}.png")
            member.size = buffer.tell()
            buffer.seek(0)
            tar.addfile(member, buffer)


def words(recipe: str, data: str, out: Path, *more: str) -> list[str]:
    return ["reproduce", recipe, "--data", data, "--quick", "--threads", "1", "--out", str(out), *more]


def test_the_list_shows_every_recipe_with_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in reproduce.RECIPES)
    assert "min" in shown


def test_a_recipe_leaves_figure_numbers_and_page(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words("cacr-fig6", data, tmp_path)) == 0
    left = tmp_path / "quick" / "cacr-fig6"
    assert (left / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (left / "figure.csv").read_text().startswith("method,seed,steps,role,rank")
    page = (left / "report.html").read_text(encoding="utf-8")
    assert "A quick test" in page
    assert "effective rank" in page  # the diagnosis of its run
    link = re.search(r'href="([^"]+report\.html)"', page)
    assert link is not None
    assert (left / link[1]).exists()
    assert "Claim:" in capsys.readouterr().out
    look_at_the_run(data, next((tmp_path / "quick" / "jobs").glob("*/run")))


def look_at_the_run(data: str, run: Path) -> None:
    """The looks of other recipes, at the run that is there."""
    setting = Setting("laptop", data, (0,), quick=True)
    steps = [str(step) for step in range(5)]  # the state before the first one too
    entropies = EntropyCurve()(run, setting)
    assert [row["step"] for row in entropies] == steps
    assert all(0 < float(row["entropy"]) <= float(row["max_entropy"]) for row in entropies)
    accuracies = AccuracyCurve(Knn())(run, setting)
    assert [row["step"] for row in accuracies] == steps
    [at_end] = Accuracy((Knn(),))(run, setting)
    assert accuracies[-1]["linear"] == at_end["knn"]  # the weights of the last checkpoint are those of the run
    points = Map(size=24)(run, setting)
    roles = Counter((row["step"], row["role"]) for row in points)
    assert roles == {(step, role): n for step in ("1", "3", "4") for role, n in ROLES.items()}
    assert Map(epochs=(0, 20)).times(run) == {1, 4}  # of 6 steps in an epoch the run took 4
    [held_out] = HeldOut()(run, setting)
    assert 0 <= float(held_out["linear"]) <= 100
    with pytest.raises(UserError, match="has 48 training images, and 64 are to be looked at"):
        Spread(64, training=True)(run, setting)
    page = run / "report.html"
    (run / "evaluations.json").unlink()  # those of above
    for expected in (True, False):
        page.write_text("the page at the end of the training")
        job = Training({}, words=("cacr",), looks=(Accuracy((Knn(),)),), seconds=1.0)
        job.perform(run.parent, setting, Console(file=io.StringIO()))
        assert ("On test images, with 95" in page.read_text(encoding="utf-8")) == expected  # once
    other = Training({}, words=("cacr", "--views", "5", "--preset", "small", "--seed", "0"), looks=())
    with pytest.raises(
        UserError, match=r"run was made with other settings \(.*max_steps 4, now None.*\): move it away"
    ):
        other.perform(run.parent, replace(setting, images="48/2/32"), Console(file=io.StringIO()))


def test_an_interrupted_recipe_goes_on_and_redoes_nothing(data: str, tmp_path: Path) -> None:
    command = words("jcl-fig3", data, tmp_path, "--steps", "60")
    jobs = tmp_path / "quick" / "jobs"
    first = Command(*command, log=tmp_path / "log")
    first.wait_until(lambda: any(jobs.glob("moco-v2*/run/metrics.jsonl")))
    first.send(signal.SIGINT)
    assert first.wait() == 128 + signal.SIGINT
    assert "stopped with 1 of 2 runs done" in (tmp_path / "log").read_text().replace("\n", " ")
    [done] = jobs.glob("jcl*/run/encoder.safetensors")
    before = done.stat().st_mtime_ns
    assert main(command) == 0
    assert done.stat().st_mtime_ns == before
    [log] = jobs.glob("moco-v2*/log.txt")
    assert "resuming" in log.read_text()
    page = (tmp_path / "quick" / "jcl-fig3" / "report.html").read_text(encoding="utf-8")
    assert "nearest neighbours of each of 24 images" in page  # the test images, by both encoders
    assert main(command) == 0  # and a third time there is nothing to do


@dataclass(frozen=True)
class Brittle(Job):
    """Does nothing but fail, as long as its recipe is broken."""

    error: Exception | None = field(kw_only=True, compare=False)

    @property
    def identity(self) -> str:
        return f"brittle {self.keys}"

    def settings(self, images: str | None) -> Resolved:
        return {"brittle": (self.keys["keys"], False)}

    def perform(self, directory: Path, setting: Setting, console: Console) -> list[Row]:
        if self.error is not None:
            raise self.error
        return [{**self.keys, "knn": "40", "linear": "50", "seconds": "1"}]


@dataclass(frozen=True, kw_only=True)
class BrittleRun(SetUp):
    error: Exception | None

    def job(self, seed: int) -> Job:
        return Brittle(self.keys(seed=seed, steps=4), error=self.error)


def breaking(errors: Mapping[int, Exception], name: str = "breaking", kind: type[Sweep] = Sweep) -> Sweep:
    """Three runs; maybe a user's mistake and a fault of ours in the first two."""

    def runs(_: Setting) -> list[SetUp]:
        return [BrittleRun(columns={"keys": keys}, error=errors.get(keys)) for keys in (1, 2, 3)]

    return kind(
        name=name,
        where="nowhere",
        title="a test",
        claim="none",
        expectation="none",
        paper_setup="none",
        runs=runs,
        variables=("keys",),
        label="{keys}".format_map,
        comparisons=(Comparison("3", "1"),),
    )


def test_a_failed_run_does_not_lose_the_others(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = breaking({1: UserError("--lr 9 is too much: use 0.1"), 2: ZeroDivisionError("ours")})
    monkeypatch.setitem(reproduce.RECIPES, "breaking", broken)
    assert main(words("breaking", data, tmp_path)) == 2
    error = capsys.readouterr().err
    assert "1 of 3 runs are done" in error
    assert "--lr 9 is too much" in error
    assert "ZeroDivisionError: ours (traceback in " in error
    results = tmp_path / "quick" / "results" / "breaking.csv"
    assert [line.split(",")[0] for line in results.read_text().splitlines()] == ["keys", "3"]
    page = (tmp_path / "quick" / "breaking" / "report.html").read_text(encoding="utf-8")
    assert "Incomplete: 2 of 3" in page
    assert page.count("why it failed") == 2
    assert any("ZeroDivisionError" in path.read_text() for path in tmp_path.rglob("failure.txt"))
    monkeypatch.setitem(reproduce.RECIPES, "breaking", breaking({}))
    assert main(words("breaking", data, tmp_path)) == 0
    assert capsys.readouterr().out.count("done: knn") == 2  # only what was missing
    assert not list(tmp_path.rglob("failure.txt"))


def test_equal_reasons_are_told_once(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(reproduce.RECIPES, "breaking", breaking(dict.fromkeys((1, 2, 3), ZeroDivisionError("ours"))))
    assert main(words("breaking", data, tmp_path)) == 2
    error = capsys.readouterr().err
    assert "keys 1, seed 0, steps 4 and 2 more failed (ZeroDivisionError: ours" in error
    assert error.count("ours") == 1


@dataclass(frozen=True, kw_only=True)
class Waiting(Sweep):
    """The last run is known only when the first is done."""

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        first, _, last = super().jobs(setting, store)
        return [first, last if store.rows_of(first) else replace(last, waits_for="the first")]


def test_runs_that_wait_for_another_process_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, setting = breaking({}, kind=Waiting), Setting("laptop", "", (0,), quick=True)
    store = Store(tmp_path / "results", recipe.name)
    first = recipe.jobs(setting, store)[0]
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            store.add(first, recipe.columns(), first.perform(tmp_path, setting, Console()))

    monkeypatch.setattr("manyview.reproduce.runner.time.sleep", nap)
    with locked(place(first, setting, tmp_path), wait=False) as other:
        assert other
        outcome = carry_out(recipe, setting, tmp_path, store, Console())
    assert outcome.whole
    assert len(naps) == 2
    assert capsys.readouterr().out.count("waiting for another process") == 1


def test_runs_of_another_recipe_are_not_made_again(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, ran in (("breaking", 3), ("other", 0)):
        monkeypatch.setitem(reproduce.RECIPES, name, breaking({}, name))
        assert main(words(name, data, tmp_path)) == 0
        shown = capsys.readouterr().out
        assert shown.count("done: knn") == ran
        assert f"{3 - ran} done" in shown
    assert (tmp_path / "quick" / "results" / "other.csv").exists()


def test_what_another_process_ends_between_two_looks_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, setting = breaking({}, kind=Waiting), Setting("laptop", "", (0,), quick=True)
    store = Store(tmp_path / "results", recipe.name)
    first = recipe.jobs(setting, store)[0]
    monkeypatch.setattr("manyview.reproduce.runner.done_of", ended_meanwhile(first, recipe, tmp_path, setting))
    assert carry_out(recipe, setting, tmp_path, store, Console(file=io.StringIO())).whole


def ended_meanwhile(
    first: Job, recipe: Recipe, where: Path, setting: Setting
) -> Callable[[list[Job], Recipe, Store], list[Job]]:
    """As `done_of`, after the other process has added its row."""

    def look(jobs: list[Job], _: Recipe, store: Store) -> list[Job]:
        store.add(first, recipe.columns(), first.perform(where, setting, Console()))
        return done_of(jobs, recipe, store)

    return look


def test_what_waits_is_not_taken_from_elsewhere(tmp_path: Path) -> None:
    """Its flags are not known yet, whatever stands in their place."""
    recipe, setting = breaking({}, kind=Waiting), Setting("laptop", "", (0,))
    whole = Store(tmp_path, "breaking", "", "50000/10/32")
    *_, last = breaking({}).jobs(setting, whole)
    whole.add(last, recipe.columns(), last.perform(tmp_path, setting, Console()))
    store = Store(tmp_path, "waiting", "", "50000/10/32")
    assert done_of(recipe.jobs(setting, store), recipe, store) == []


def test_a_process_does_not_wait_for_what_nothing_waits_for(tmp_path: Path) -> None:
    recipe, setting = breaking({}), Setting("laptop", "", (0,), quick=True)
    store = Store(tmp_path / "results", recipe.name)
    with locked(place(recipe.jobs(setting, store)[0], setting, tmp_path), wait=False):
        outcome = carry_out(recipe, setting, tmp_path, store, Console())
    assert (len(outcome.done), len(outcome.elsewhere)) == (2, 1)


def test_what_another_process_has_ended_is_no_longer_in_its_hands(tmp_path: Path) -> None:
    recipe, setting = breaking({}), Setting("laptop", "", (0,), quick=True)
    store = Store(tmp_path / "results", recipe.name)
    first, second, _ = recipe.jobs(setting, store)
    told: list[str] = []

    class Ending(Console):
        """The other process is done with the first run while this one begins the second."""

        def print(self, *words: object, **_: object) -> None:
            told.extend(map(str, words))
            if f": {second}" in told[-1]:
                store.add(first, recipe.columns(), first.perform(tmp_path, setting, self))

    with locked(place(first, setting, tmp_path), wait=False):
        outcome = carry_out(recipe, setting, tmp_path, store, Ending())
    assert outcome.whole
    assert outcome.elsewhere == []
    assert len(told) == 4


def test_only_whole_runs_tell_how_long_the_rest_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    monkeypatch.setattr(Clock, "count", lambda _, job, seconds: counted.append(job.keys["keys"]))
    recipe, setting = breaking({1: UserError("too much")}), Setting("laptop", "", (0,), quick=True)
    store = Store(tmp_path / "results", recipe.name)
    begun = place(recipe.jobs(setting, store)[1], setting, tmp_path)
    (begun / "run").mkdir(parents=True)
    carry_out(recipe, setting, tmp_path, store, Console())
    assert counted == ["3"]  # the first failed, the second was begun before


def test_what_is_done_on_one_set_is_not_done_on_another(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(reproduce.RECIPES, "breaking", breaking({}))
    write_tar(tmp_path / "train.tar", 50)
    write_tar(tmp_path / "test.tar", 24)
    for where, ran in ((data, 3), (str(tmp_path), 3), (data, 0)):
        assert main(words("breaking", where, tmp_path / "out")) == 0
        assert capsys.readouterr().out.count("done: knn") == ran


def test_images_that_are_not_there_are_one_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words("jcl-fig2c", "/nonexistent", tmp_path)) == 2
    assert capsys.readouterr().err.startswith("manyview: --data: '/nonexistent' does not exist")
    assert not list(tmp_path.iterdir())


def test_figures_of_one_set_are_not_called_those_of_another(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "cacr-fig4", "--data", data, "--out", str(tmp_path)]) == 2
    assert "about a set of 100 classes" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["nothing"], "no recipe 'nothing'"),
        (["jcl-fig3", "--seeds", "0,x"], "--seeds 0,x is not a list"),
        (["jcl-fig3", "--steps", "0"], "--steps 0 must be greater"),
        (["jcl-fig3", "--threads", "0"], "--threads 0 must be greater"),
        (["jcl-fig3", "--quick", "--results", "results"], "leave out --results"),
        (["jcl-fig3", "--scale", "paper"], "--scale paper needs --data with the paper's images (ImageNet-100"),
    ],
)
def test_mistakes_are_one_line(more: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *more]) == 2
    assert complaint in capsys.readouterr().err
