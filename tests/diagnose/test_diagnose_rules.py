"""Every finding, by numbers that call for it and by numbers that do not."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from manyview.cli import main
from manyview.diagnose.facts import Comparison, Facts
from manyview.diagnose.finding import LEVELS, Finding
from manyview.diagnose.rules import findings, judge, ruled
from manyview.evaluate.records import Record
from manyview.evaluate.result import Metric, Result

CONFIG: dict[str, dict[str, Any]] = {
    "data": {"data": "scenes", "workers": 2},
    "encoder": {"dim": 128},
    "optim": {"batch_size": 64, "accumulate": 1, "precision": "float32"},
    "method": {"queue_size": 1000, "temperature": 0.2, "mask_own": False},
}
STEPS = 400


def rows(steps: int = STEPS, **series: Sequence[float | None] | float) -> list[dict[str, Any]]:
    """Metrics of a run that is well, but for the `series` given; a number stands for one in each step."""
    course: dict[str, Any] = {
        "loss": [4 + 2 * math.exp(-step / 50) + 0.1 * (step % 3) for step in range(steps)],
        "lr": [0.03 * (1 + math.cos(math.pi * step / steps)) for step in range(steps)],
        "wait": 0.01,
        "images_per_s": 500.0,
        "variance": 0.97,
        "effective_rank": 40.0,
    } | series
    return [
        {"step": step} | {key: each[step] if isinstance(each, list) else each for key, each in course.items()}
        for step in range(steps)
    ]


def facts(
    metrics: Sequence[dict[str, Any]] = (),
    *,
    method: str = "moco-v2",
    finished: bool = True,
    samples: int = 10_000,
    **flags: Any,
) -> Facts:
    config = {group: {**values, **{k: v for k, v in flags.items() if k in values}} for group, values in CONFIG.items()}
    data = {"name": "scenes", "samples": samples, "classes": ["box", "cone"]}
    run = Path("runs/a")
    return Facts(run, method, "0", "small", config, data, {}, {}, tuple(metrics), (), (), finished)


def found(about: str, known: Facts) -> Finding | None:
    """The one finding about it, if there is one."""
    several = [finding for finding in judge(known) if finding.about == about]
    assert len(several) < 2
    return several[0] if several else None


def level(about: str, known: Facts) -> str | None:
    finding = found(about, known)
    assert finding is None or (finding.advice == "") == (finding.level in ("good", "normal"))
    return None if finding is None else finding.level


def test_a_run_that_is_well_has_nothing_but_good_findings() -> None:
    known = facts(rows(knn=[0.3 + step / 1000 for step in range(STEPS)]))
    levels = [finding.level for finding in ruled(known)]
    assert levels == ["good"] * 7 + ["unknown"]  # nobody has probed it
    assert [finding.level for finding in judge(known)] == ["unknown", *levels]  # nor compared it with anything
    assert judge(facts(finished=False)) == []


def test_the_worst_comes_first() -> None:
    levels = [LEVELS.index(finding.level) for finding in ruled(facts(rows(variance=0.01, wait=0.2), samples=1500))]
    assert levels == sorted(levels)
    assert {"problem", "warning", "good", "unknown"} == {LEVELS[each] for each in levels}


@pytest.mark.parametrize(
    ("variance", "rank", "expected"),
    [
        (0.97, 40.0, "good"),
        (0.02, 40.0, "problem"),
        (0.9, 2.1, "problem"),
        (0.2, 40.0, "warning"),
        (0.9, 9.0, "warning"),
    ],
)
def test_collapse_to_a_point_or_to_a_few_directions(variance: float, rank: float, expected: str) -> None:
    finding = found("Embeddings", facts(rows(variance=variance, effective_rank=rank)))
    assert finding is not None
    assert finding.level == expected
    assert f"{variance:.2f}" in finding.text
    assert f"{rank:.1f}" in finding.text


def test_collapse_is_never_told_of_many_directions() -> None:
    for variance, rank in [(0.02, 91.3), (0.02, 2.0), (0.9, 2.0)]:
        finding = found("Embeddings", facts(rows(variance=variance, effective_rank=rank)))
        assert finding is not None
        assert ("collapsed" in finding.text) == (rank < 3)
    assert level("Embeddings", facts(rows(variance=0.02, effective_rank=91.3), finished=False)) == "warning"


def test_advice_names_no_flag_that_the_run_has_not() -> None:
    simclr = facts(rows(effective_rank=2.0, wait=0.5), method="simclr", workers="auto")
    simclr = replace(simclr, config={**simclr.config, "method": {"temperature": 0.2}})
    finding = found("Embeddings", simclr)
    assert finding is not None
    assert "more negatives (--batch-size)" in finding.advice
    waiting = found("Data loading", simclr)
    assert waiting is not None
    assert "--workers" not in waiting.advice  # every processor reads already
    nothing: list[float | None] = [None] * STEPS
    assert found("Embeddings", facts(rows(variance=nothing), method="predictive")) is None  # which has no contrast


def test_unlabelled_data_is_never_asked_for_labels() -> None:
    known = facts(rows())
    for data in ({**known.data, "classes": []}, {**known.data, "classes": ["photos"]}):
        texts = [f"{each.text} {each.advice}" for each in judge(replace(known, data=data))]
        assert not any(word in text for text in texts for word in ("evaluate knn", "evaluate linear", "--knn-every"))
        assert "manyview evaluate recognise runs/a --data scenes" in texts[0]


def test_a_queue_of_random_vectors_explains_a_small_first_loss() -> None:
    rising = [0.2 + min(4.0, step / 10) for step in range(STEPS)]
    finding = found("Loss at the start", facts(rows(loss=rising)))
    assert finding is not None
    assert finding.level == "normal"
    assert "began at 0.20, far below chance (6.91), and rises at first" in finding.text
    assert "from step 16 on" in finding.text  # 1,000 places, 64 keys a step
    assert found("Loss at the start", facts(rows())) is None
    assert found("Loss at the start", facts(rows(loss=rising), method="cacr-moco")) is None  # it has no such level


def test_only_the_last_measurement_of_the_embeddings_counts() -> None:
    early: list[float | None] = [0.01] * 10 + [None] * (STEPS - 11) + [0.95]
    assert level("Embeddings", facts(rows(variance=early))) == "good"


def test_embeddings_that_were_not_measured_are_not_judged() -> None:
    nothing: list[float | None] = [None] * STEPS
    finding = found("Embeddings", facts(rows(variance=nothing, effective_rank=nothing)))
    assert finding is not None
    assert finding.level == "unknown"
    assert "--contrast-every" in finding.advice


def test_a_loss_that_is_no_number_names_its_step() -> None:
    broken: list[float | None] = [5.0] * 40
    broken[17] = None
    worst = ruled(facts(rows(40, loss=broken), precision="fp16"))[0]
    assert (worst.level, worst.text) == ("problem", "The loss was NaN or infinite in step 17.")
    assert "--lr" in worst.advice
    assert "bf16" in worst.advice
    assert not any("NaN" in finding.text for finding in judge(facts(rows())))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(math.log(1001), "problem"), (7.5, "problem"), (4.0, "good"), (0.9 * math.log(1001), "good"), (0.05, "warning")],
)
def test_the_loss_against_guessing(loss: float, expected: str) -> None:
    """With a queue of 1,000 it costs log 1,001 = 6.91."""
    finding = found("Loss", facts(rows(loss=loss)))
    assert finding is not None
    assert finding.level == expected
    assert "log 1,001 = 6.91" in finding.text
    if loss == 4.0:
        assert f"as if there were {math.exp(4):.1f} candidates instead of 1,001" in finding.text


@pytest.mark.parametrize("method", ["cacr-moco", "au-cl-moco", "mv-dhel", "unheard-of"])
def test_a_loss_without_such_a_level_is_not_judged_by_it(method: str) -> None:
    assert found("Loss", facts(rows(loss=9.0), method=method)) is None


def test_a_queue_of_random_vectors_is_no_measure_of_the_loss() -> None:
    known = facts(rows(steps=10, loss=2.0))
    assert found("Loss", known) is None
    assert level("Queue", known) == "problem"


def test_a_loss_that_rises_again_is_a_bad_one() -> None:
    falling = [4 + 2 * math.exp(-step / 50) + 0.1 * (step % 3) for step in range(STEPS)]
    rising = [loss + max(0, step - 300) / 50 for step, loss in enumerate(falling)]
    assert level("Loss curve", facts(rows(loss=falling))) == "good"
    finding = found("Loss curve", facts(rows(loss=rising)))
    assert finding is not None
    assert finding.level == "problem"
    assert "--lr" in finding.advice


def test_a_loss_that_rises_while_the_queue_fills_is_normal() -> None:
    moco = [2.5 + min(step, 60) / 20 - max(0, step - 60) / 300 for step in range(STEPS)]
    assert level("Loss curve", facts(rows(loss=moco))) == "good"


def test_noise_is_no_rise() -> None:
    noise = torch.randn(100, STEPS, generator=torch.Generator().manual_seed(0)).tolist()
    assert all(level("Loss curve", facts(rows(loss=[5 + each for each in one]))) == "good" for one in noise)


def test_a_loss_that_grows_with_lambda_is_not_judged() -> None:
    growing = [4 + step / 100 for step in range(STEPS)]
    assert found("Loss curve", facts(rows(loss=growing, lam=[step / 100 for step in range(STEPS)]))) is None
    assert level("Loss curve", facts(rows(loss=growing, lam=4.0))) == "problem"
    assert found("Loss curve", facts(rows(steps=30))) is None  # too few steps to tell


@pytest.mark.parametrize(
    ("samples", "flags", "expected"),
    [
        (10_000, {}, "good"),
        (2000, {}, "good"),
        (1500, {}, "warning"),
        (1000, {}, "problem"),
        (1000, {"mask_own": True}, "good"),
    ],
)
def test_a_queue_as_large_as_the_set_holds_own_keys(samples: int, flags: dict[str, Any], expected: str) -> None:
    assert level("Queue", facts(rows(), samples=samples, **flags)) == expected


def test_the_share_of_own_keys_is_that_of_a_simulation() -> None:
    size, queue = 1000, 700
    torch.manual_seed(0)
    last, met = torch.randperm(size), 0
    for _ in range(20):
        order = torch.randperm(size)
        distance = size - last.argsort() + order.argsort()  # of each sample, from its last place to its next
        met += int((distance <= queue).sum())
        last = order
    finding = found("Queue", facts(rows(), samples=size, queue_size=queue))
    assert finding is not None
    assert met / 20 / size == pytest.approx(0.245, abs=0.01)
    assert "About 24.5\u202f% of the queries" in finding.text


def test_methods_without_a_queue_have_no_word_of_it() -> None:
    known = facts(rows(), method="simclr", queue_size=None)
    assert found("Queue", known) is None


@pytest.mark.parametrize(("share", "expected"), [(0.0, "good"), (0.09, "good"), (0.2, "warning"), (0.6, "problem")])
def test_waiting_for_data_asks_for_readers(share: float, expected: str) -> None:
    finding = found(
        "Data loading", facts(rows(wait=[0.99] + [share] * (STEPS - 1)))
    )  # readers that start count nothing
    assert finding is not None
    assert finding.level == expected
    assert ("--workers 4" in finding.advice) == (expected != "good")


def test_slow_steps_weigh_as_long_as_they_take() -> None:
    waits, rates = [0.0, 0.9, 0.0, 0.0], [500.0, 10.0, 500.0, 500.0]
    finding = found("Data loading", facts(rows(4, wait=waits, images_per_s=rates)))
    assert finding is not None
    assert "86.5\u202f% of the time" in finding.text  # 0.9 · 0.1 s of 0.104 s


def test_the_learning_rate_at_the_end() -> None:
    assert level("Learning rate", facts(rows())) == "good"
    assert level("Learning rate", facts(rows(lr=0.03))) == "warning"
    assert level("Learning rate", facts(rows(lr=[step / 1000 for step in range(STEPS)]))) == "problem"
    assert found("Learning rate", facts(rows(lr=0.03), finished=False)) is None


@pytest.mark.parametrize(
    ("schedule", "advice"), [("constant", "Use --schedule cosine"), ("step", "--milestones"), ("cosine", "more steps")]
)
def test_a_rate_that_stays_high_is_advised_by_its_schedule(schedule: str, advice: str) -> None:
    known = facts(rows(lr=0.03))
    known = replace(known, config={**known.config, "optim": {"schedule": schedule}})
    finding = found("Learning rate", known)
    assert finding is not None
    assert advice in finding.advice


def test_knn_that_falls_during_the_run() -> None:
    def measured(*shares: float) -> Facts:
        sparse: list[float | None] = [None] * STEPS
        for place, share in enumerate(shares):
            sparse[100 * place] = share
        return facts(rows(knn=sparse))

    assert level("kNN during training", measured(0.3, 0.5, 0.49)) == "good"
    assert level("kNN during training", measured(0.3, 0.5, 0.47)) == "warning"
    finding = found("kNN during training", measured(0.3, 0.5, 0.4))
    assert finding is not None
    assert finding.level == "problem"
    assert "from 50.0\u202f% at step 100 to 40.0\u202f% at step 200 (−10.0 points)" in finding.text
    assert "--max-steps 101" in finding.advice
    assert level("kNN during training", measured(0.3)) == "unknown"


def result(fitted: float | None, tested: float, unit: Literal["%", ""] = "%") -> Result:
    return Result({"score": Metric(tested, unit=unit)}, "score", {} if fitted is None else {"fitted": fitted})


def probed(*probes: tuple[str, float | None, float]) -> Facts:
    comparisons = tuple(
        Comparison({"trained": Record(protocol, {}, "trained", "scenes", "test", result(fitted, tested))})
        for protocol, fitted, tested in probes
    )
    known = facts(rows())
    return Facts(**{**vars(known), "comparisons": comparisons})


def test_a_probe_that_learns_by_heart() -> None:
    assert level("Overfitting", probed(("linear", 0.6, 0.55))) == "good"
    assert level("Overfitting", probed(("linear", 0.7, 0.55))) == "warning"
    worst = found("Overfitting", probed(("linear", 0.6, 0.55), ("mlp", 0.99, 0.5), ("knn", None, 0.4)))
    assert worst is not None
    assert worst.level == "problem"
    assert "99.0\u202f% on its training images, 50.0\u202f% on test images" in worst.text
    assert "--dropout" in worst.advice
    unknown = found("Overfitting", probed(("knn", None, 0.4)))
    assert unknown is not None
    assert (unknown.level, "manyview evaluate linear runs/a --data scenes" in unknown.advice) == ("unknown", True)


def test_a_directory_is_judged_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"method": "moco-v2", "config": CONFIG, "data": {"samples": 1000, "name": "scenes"}}
    (tmp_path / "config.json").write_text(json.dumps(run))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(variance=0.01)))
    assert main(["diagnose", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert findings(tmp_path)[0].about == "Better than random weights or raw pixels?"
    for finding in findings(tmp_path):
        assert f"{finding.level} {finding.about}: {' '.join(finding.text.split())}" in text
        assert "".join(finding.advice.split()) in text.replace(" ", "")  # a long path is broken anywhere
    assert text.startswith("unknown Better than random weights or raw pixels?: Not measured.")
    assert "warning Embeddings: The embeddings lie close together, but still differ in many directions" in text


def test_what_is_no_run_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    assert main(["diagnose", str(tmp_path)]) == 0
    assert "nothing to judge yet" in capsys.readouterr().out
