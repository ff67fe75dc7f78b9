"""The main question: better than random weights, than raw pixels, than the start?"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyview.diagnose.facts import Comparison, Facts
from manyview.diagnose.finding import Finding
from manyview.diagnose.rules import judge, ruled
from manyview.diagnose.verdict import difference, verdict
from manyview.evaluate.knn import Knn
from manyview.evaluate.records import Record
from manyview.evaluate.result import Metric, Result

INIT = "timm:resnet18.a1_in1k"


def record(encoder: str, value: float, protocol: str = "knn", spread: float = 0.01, **more: Any) -> Record:
    result = Result({"top-1": Metric(value, (value - spread, value + spread))}, "top-1")
    settings = Knn().settings if protocol == "knn" else {}
    return Record(protocol, settings, encoder, "scenes", "scenes (test split)", result, **more)


def facts(
    *comparisons: dict[str, float] | list[Record],
    metrics: Sequence[dict[str, Any]] = (),
    start: dict[str, Any] | None = None,
    classes: Sequence[str] = ("box", "cone"),
    finished: bool = True,
    **optim: Any,
) -> Facts:
    found = [
        Comparison({each.encoder: each for each in some})
        if isinstance(some, list)
        else Comparison({name: record(name, value) for name, value in some.items()})
        for some in comparisons
    ]
    config: dict[str, Any] = {"data": {"data": "scenes"}, "optim": {"lr": 0.03, "batch_size": 64, **optim}}
    if start is not None:
        config["encoder"] = {"init": INIT}
    data = {"name": "scenes", "samples": 10_000, "classes": list(classes)}
    rows = tuple(metrics) or ({"step": 0, "loss": 1.0, "lr": 0.1, "wait": 0.0, "images_per_s": 1.0, "epoch": 30.0},) * 2
    return Facts(
        *(Path("runs/a"), "simclr", "0", "small", config, data, {"samples": 512}, {}, rows, tuple(found), (), finished),
        start=start or {},
    )


def answer(known: Facts, about: str) -> Finding:
    [found] = [each for each in verdict(known) if about in each.about]
    assert judge(known)[: len(verdict(known))] == verdict(known)  # first of all
    return found


@pytest.mark.parametrize(
    ("trained", "random", "level", "word"),
    [
        (0.71, 0.31, "good", "Yes."),
        (0.216, 0.272, "problem", "No, it is worse."),
        (0.275, 0.272, "warning", "There is no clear difference."),
        (0.27, 0.272, "warning", "There is no clear difference."),
    ],
)
def test_the_answer_has_its_numbers(trained: float, random: float, level: str, word: str) -> None:
    found = answer(facts({"trained": trained, "random": random}), "random weights")
    assert (found.level, found.advice == "") == (level, level == "good")
    assert found.text.startswith(f"{word} kNN classifier on scenes: top-1 {100 * trained:.1f}\u202f% [")
    assert f"random weights {100 * random:.1f}\u202f% [" in found.text


def test_a_run_that_is_worse_than_random_is_nowhere_called_good() -> None:
    worse, better = ({"trained": 0.216, "random": value} for value in (0.272, 0.1))
    assert "good" in {each.level for each in judge(facts(better))}
    levels = {each.level for each in judge(facts(worse))}
    assert "good" not in levels
    assert "normal" in levels
    start = facts({"trained": 0.5, "random": 0.1, "pixels": 0.1, "start": 0.7}, start={"weights": INIT})
    assert not any(each.level == "good" for each in judge(start))
    assert ruled(start)
    assert not any("more --epochs" in each.advice or "Train longer" in each.advice for each in judge(start))


def test_the_interval_of_a_difference_is_that_of_two_independent_ones() -> None:
    low, high = difference(Metric(0.5, (0.47, 0.54)), Metric(0.3, (0.26, 0.33)))
    assert low == pytest.approx(0.2 - (0.03**2 + 0.03**2) ** 0.5)
    assert high == pytest.approx(0.2 + (0.04**2 + 0.04**2) ** 0.5)
    assert list(difference(Metric(0.5), Metric(0.3))) == pytest.approx([0.2, 0.2])


def test_several_protocols_answer_together_and_views_only_without_labels() -> None:
    linear = [record("trained", 0.3, "linear"), record("random", 0.6, "linear")]
    mixed = answer(facts({"trained": 0.7, "random": 0.3}, linear), "random")
    assert (mixed.level, mixed.text.startswith("Not by every measure. kNN")) == ("problem", True)
    assert "Linear probe on cached features" in mixed.text
    views = [record("trained", 0.9, "recognise"), record("random", 0.3, "recognise")]
    alone = answer(facts(views, classes=()), "random")
    assert (alone.level, "only labels tell" in alone.text) == ("good", True)
    assert "Recognition" not in answer(facts(views, {"trained": 0.2, "random": 0.3}), "random").text


def test_what_was_not_measured_is_said_with_a_command_that_works() -> None:
    both = answer(facts(), "random weights or raw pixels")
    assert (both.level, both.advice) == ("unknown", "Run `manyview evaluate knn runs/a --data scenes`.")
    unlabelled = answer(facts(classes=()), "random weights or raw pixels")
    assert unlabelled.advice == "Run `manyview evaluate recognise runs/a --data scenes`. It needs no labels."
    half = facts({"trained": 0.7, "random": 0.3})
    assert [each.about for each in verdict(half)] == ["Better than random weights?", "Better than raw pixels?"]
    knn = answer(facts(metrics=[{"step": 9, "knn": 0.216}]), "random")
    assert "kNN accuracy during training ended at 21.6\u202f%" in knn.text


def looks(**values: Sequence[float]) -> list[dict[str, float]]:
    count = max(map(len, values.values()))
    return [{"step": 10 * n + 9} | {key: each[n] for key, each in values.items()} for n in range(count)]


@pytest.mark.parametrize(
    ("last", "level", "word"), [(0.5, "good", "Yes."), (0.35, "problem", "No"), (0.42, "warning", "There is no clear")]
)
def test_looks_tell_whether_a_run_improved_on_its_start(last: float, level: str, word: str) -> None:
    start = {"weights": INIT, "knn": 0.412, "recognised": 0.83, "feature_rank": 55.1}
    metrics = looks(knn=[0.45, last], recognised=[0.85, 0.9], feature_rank=[50.0, 40.0])
    found = answer(facts(metrics=metrics, start=start, warmup_head_epochs=0.0), "its start")
    assert found.level == level
    assert found.text.startswith(word)
    assert f"began from {INIT}. kNN accuracy 41.2\u202f% → {100 * last:.1f}\u202f%; views recognised" in found.text
    assert "effective rank of the features 55.1 → 40.0" in found.text
    if level != "good":
        assert "--backbone-lr 0.003, --warmup-head-epochs 1, or fewer --epochs" in found.advice
    if level == "problem":
        assert "it was best at step 9, with 45.0\u202f% (+3.8 points)" in found.advice


def test_a_fall_on_few_test_images_is_not_clear() -> None:
    start = {"weights": INIT, "knn": 0.412}
    known = facts(metrics=looks(knn=[0.35]), start=start)
    assert answer(known, "its start").level == "problem"
    few = replace(known, data={**known.data, "samples": 500})
    assert answer(few, "its start").level == "warning"


def test_without_labels_the_recognition_of_views_tells_and_evaluations_tell_more() -> None:
    start = {"weights": INIT, "recognised": 0.83}
    metrics = looks(recognised=[0.7, 0.6])
    found = answer(facts(metrics=metrics, start=start, classes=()), "its start")
    assert (found.level, "--snapshots 10" in found.advice) == ("problem", True)
    evaluated = answer(facts({"trained": 0.7, "start": 0.5}, metrics=metrics, start=start), "its start")
    assert evaluated.level == "good"
    assert "its start 50.0\u202f%" in evaluated.text
    assert "views recognised 83.0\u202f% → 60.0\u202f%" in evaluated.text


def test_a_start_without_any_look_is_not_judged() -> None:
    found = answer(facts(start={"weights": INIT}), "its start")
    assert (found.level, found.advice) == (
        "unknown",
        f"Run `manyview evaluate knn runs/a --data scenes --against {INIT}`.",
    )
    assert not any("start" in each.about for each in verdict(facts()))
