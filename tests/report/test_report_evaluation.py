"""Results of evaluations: any metric, each beside that of the random encoder with the same settings."""

import json
from pathlib import Path

from faked import fake_evaluation, fake_run, page_of, probe_layers


def test_the_newest_evaluation_counts(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    older, newer = fake_evaluation("knn", "trained", 0.111), fake_evaluation("knn", "trained", 0.999)
    (run / "evaluations.json").write_text(json.dumps([older, newer]))
    page = page_of(run)
    assert "99.9 %" in page.text
    assert "11.1 %" not in page.text
    assert "Not measured. kNN classifier on scenes: top-1 99.9 % [98.0, 101.7] alone." in page.text


def test_single_views_have_a_table_of_their_own(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    probe_layers(run, keep=True)
    file = run / "evaluations.json"
    views = [
        {**fake_evaluation("linear", "trained", top1), "views": name} for name, top1 in (("L", 0.3), ("depth", 0.6))
    ]
    file.write_text(json.dumps([*json.loads(file.read_text()), *views]))
    page = page_of(run)
    assert "Linear probe on cached features · scenes · by view" in page.text
    assert "View Trained view L 30.0 %" in page.text
    assert sum("top-1 by layer" in (attributes.get("aria-label") or "") for attributes in page.all("svg")) == 1


def test_layers_have_a_plot_and_a_table_beside_the_figures_of_the_features(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    probe_layers(run, keep=True)
    page = page_of(run)
    assert "linear top-1 78.3 % random encoder: 40.5 %" in page.text  # the features', not a layer's
    assert page.text.count("Linear probe on cached features · scenes") == 2
    assert "Linear probe on cached features · scenes · by layer" in page.text
    assert "Layer Trained Random conv1 30.0 % (28.1 % – 31.8 %) 20.0 %" in page.text
    assert "<fc7> 50.0 % (48.1 % – 51.8 %) –" in page.text
    labels = [attributes.get("aria-label") or "" for attributes in page.all("svg")]
    words = "top-1 by layer. trained encoder: conv1 30.0 %, conv5 60.0 %, <fc7> 50.0 %; random encoder: conv1 20.0 %, "
    assert any(label.startswith(words) for label in labels)


def test_other_settings_are_not_set_beside_each_other(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    evaluations = [
        fake_evaluation("knn", "trained", 0.999, k=20),
        fake_evaluation("knn", "random", 0.312),
        fake_evaluation("knn", "trained", 0.714),
    ]
    (run / "evaluations.json").write_text(json.dumps(evaluations))
    text = page_of(run).text
    assert (
        "kNN classifier on scenes: top-1 71.4 % [69.5, 73.2], random weights 31.2 % [29.3, 33.0]: +40.2 points ["
        in text
    )
    assert "kNN classifier (k 20) · scenes" in text
    assert "68.7 points" not in text  # 99.9 % with k = 20 less 31.2 % with k = 200


def test_any_metric_has_its_place(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    metrics = {"mIoU": {"value": 0.5}, "AP": {"value": 12.25, "interval": [12, 12.5], "unit": ""}}
    entry = {**fake_evaluation("knn", "trained", 0.5), "protocol": "segment", "metrics": metrics, "headline": "AP"}
    entries = [{**entry, "settings": {"lr": 0.1}}, {**entry, "settings": {"lr": 0.1}, "encoder": "random"}]
    entries[1] = {**entries[1], "metrics": {**metrics, "AP": {"value": 2.0, "unit": ""}}}
    (run / "evaluations.json").write_text(json.dumps(entries))
    text = page_of(run).text
    assert (
        "Yes. segment (lr 0.1) on scenes: AP 12.250 [12.000, 12.500], random weights 2.000: +10.250 [+10.000, +10.500]."
        in text
    )
    assert "segment lr=0.1 AP 12.250 random encoder: 2.000" in text
    assert "Encoder mIoU AP trained 50.0 % 12.250 (12.000 – 12.500) random 50.0 % 2.000" in text
