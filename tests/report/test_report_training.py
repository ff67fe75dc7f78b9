"""Curves of the training."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from faked import fake_pictures, fake_run, fake_step, page_of

from manyview.report import write_report


def measured_run(run: Path, every: int) -> Path:
    """40 steps, contrast in each last one of `every`."""
    fake_run(run, steps=40)
    facts = json.loads((run / "config.json").read_text())
    facts["contrast"] = {"data": "<scenes> (test split)", "samples": 512, "views": 5, "t_pos": 1.0, "t_neg": 2.0}
    (run / "config.json").write_text(json.dumps(facts))
    values = {
        "entropy": 5.0, "max_entropy": math.log(255), "alignment": 0.4, "uniformity": -2.5,
        "nearest_weight": 0.03, "effective_positives": 3.8, "effective_negatives": 150.0,
    }  # fmt: skip
    rows = [{**fake_step(step, 40), **(values if step % every == every - 1 else {})} for step in range(40)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_the_curves_are_described_in_words(tmp_path: Path) -> None:
    whole = page_of(fake_run(tmp_path, steps=600), fake_pictures())
    labels = " ".join(attributes.get("aria-label") or "" for attributes in whole.all("svg"))
    assert "Loss: from 8.225 at step 0 to" in labels
    assert "kNN top-1 during training: from" in labels
    for name in ("Learning rate", "Images per second", "waiting for data", "similarity of positives", "λ"):
        assert name in labels


@pytest.mark.parametrize("every", [1, 10, 40])
def test_contrast_is_drawn_with_what_it_cannot_exceed(tmp_path: Path, every: int) -> None:
    page = page_of(measured_run(tmp_path, every))
    labels = [attributes.get("aria-label") or "" for attributes in page.all("svg")]
    entropy = next(label for label in labels if label.startswith("Conditional entropy of the negative weights"))
    assert f"from 5 at step {every - 1} to 5 at step 39" in entropy
    assert entropy.endswith("Dashed line: maximum, log 255 = 5.54.")
    assert any(label.startswith("Weight of the nearest negative: from 3.0%") for label in labels)
    assert any(label.startswith("Effective number of negatives") and "line: all 255." in label for label in labels)
    assert any(label.startswith("Effective number of positives") and "line: all 4." in label for label in labels)
    titles = [label.partition(":")[0].partition(" (")[0] for label in labels]
    assert titles[0] == "Loss"
    assert len(titles) == len(set(titles))
    assert titles.index("Uniformity") - titles.index("Conditional entropy of the negative weights") == 5
    assert "max_entropy" not in " ".join(titles)
    assert "Measured on 512 images of <scenes> (test split), always with the same 5 views of each" in page.text
    assert "All methods use t⁺ = 1 and t⁻ = 2" in page.text


def test_a_run_without_measurements_has_no_word_of_contrast(tmp_path: Path) -> None:
    assert "Contrast" not in page_of(fake_run(tmp_path, steps=10)).text


def test_contrast_of_an_unknown_set_is_drawn_too(tmp_path: Path) -> None:
    run = measured_run(tmp_path, every=10)
    facts = json.loads((run / "config.json").read_text())
    del facts["contrast"]
    (run / "config.json").write_text(json.dumps(facts))
    page = page_of(run)
    assert "Measured on" not in page.text
    assert "The entropy is at its maximum when" in page.text


def test_what_a_method_measures_only_now_and_then_is_drawn(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=40)
    rows = [{**fake_step(step, 40), **({"rare": step / 2} if step % 20 == 19 else {})} for step in range(40)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = [attributes.get("aria-label") or "" for attributes in page_of(run).all("svg")]
    assert any(label.startswith("rare: from 9.5 at step 19 to 19.5 at step 39") for label in labels)


@pytest.mark.parametrize(
    ("method", "flags", "words"),
    [
        ("jcl", {}, "chance, log 4,097 = 8.32"),
        ("jcl", {"queue_size": "many"}, None),
        ("jcl", {"queue_size": -1}, None),
        ("simclr", {}, "chance, log 511 = 6.24"),
        ("mv-infonce", {"views": 4}, "chance, log 341 = 5.83"),
        ("cmc", {"draw": 99}, "chance, 2 · log 100 = 9.21"),
        ("cmc", {"views": "infrared"}, None),
        ("hn-cl", {"tau_plus": 2.0}, None),
        ("cacr", {}, None),
        ("unheard-of", {}, None),
    ],
)
def test_the_chance_level_is_drawn_where_the_method_has_one(
    tmp_path: Path, method: str, flags: dict[str, Any], words: str | None
) -> None:
    run = fake_run(tmp_path, method=method)
    facts = json.loads((run / "config.json").read_text())
    facts["config"]["method"] |= flags
    (run / "config.json").write_text(json.dumps(facts))
    (run / "metrics.jsonl").write_text('{"step": 0, "loss": 7.5}\n')
    page = write_report(run).read_text(encoding="utf-8")
    assert ("chance, " in page) == (words is not None)
    assert words is None or words in page


def test_looks_have_a_line_where_the_run_started(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["start"] = {"weights": "timm:resnet18.a1_in1k", "knn": 0.412, "feature_rank": 55.1}
    (run / "config.json").write_text(json.dumps(config))
    looks = {"knn": 0.5, "recognised": 0.9, "feature_rank": 60.0}
    rows = [{**fake_step(step, 10), **looks} for step in range(10)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(run)
    labels = " ".join(plot.get("aria-label") or "" for plot in page.all("svg"))
    assert "kNN top-1 during training: from 50.0% at step 0" in labels
    assert "Dashed line: start, 41.2" in labels
    assert "Dashed line: start, 55.1." in labels
    assert "Share of views recognised: from 90.0%" in labels
    assert "the encoder that the run began from, timm:resnet18.a1_in1k" in page.text
    assert "Method" not in labels  # looks are no diagnostics of the method
