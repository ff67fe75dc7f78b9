"""The top of the page: results, what is missing, findings."""

import json
from pathlib import Path

from faked import SECTIONS, fake_evaluation, fake_run, fake_step, page_of, probe_layers


def test_the_diagnosis_names_level_numbers_and_way_out(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    rows = [{**fake_step(step, 40), "wait": 0.5, "variance": 0.01, "effective_rank": 1.5} for step in range(40)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(run)
    assert (
        "problem Embeddings The encoder has collapsed: all images have nearly the same embedding. Variance 0.01"
        in page.text
    )
    assert (
        "problem Data loading Training waited for data 50.0 % of the time. → Use more reader processes (--workers 2)"
        in page.text
    )
    assert "good Queue The queue holds 4,096" not in page.text  # it is most of the 5,120 images
    classes = [item.get("class") for item in page.all("li")]
    assert classes[:4] == ["good", "unknown", "problem", "problem"]  # the answers, then the rules


def test_a_run_of_which_only_layers_were_evaluated_says_which(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    probe_layers(run, keep=False)
    text = page_of(run).text
    assert "Yes. Linear probe on cached features on scenes, conv5: top-1 60.0 % [58.1, 61.8], random weights" in text
    assert "Not evaluated yet" not in text


def test_an_unfinished_run_says_what_is_missing(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=10, finished=False)
    (run / "evaluations.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(lines[:7]) + "\n" + lines[7][:25])
    page = page_of(run)
    assert "This run is not finished (7 steps so far). To continue it: manyview resume" in page.text
    assert "Not evaluated yet" in page.text
    assert page.text.count("Not shown: the data was not available") == 3
    assert all(title in page.text for title in SECTIONS)


def test_an_encoder_that_is_worse_than_random_opens_the_page_with_it(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=10)
    evaluations = [fake_evaluation("knn", "random", 0.272), fake_evaluation("knn", "trained", 0.216)]
    (run / "evaluations.json").write_text(json.dumps(evaluations))
    page = page_of(run)
    first = page.text.index("No, it is worse. kNN classifier on scenes: top-1 21.6 %")
    assert first < page.text.index("Diagnosis")
    classes = [item.get("class") for item in page.all("li")]
    assert classes[:2] == ["problem", "unknown"]
    assert "good" not in classes
