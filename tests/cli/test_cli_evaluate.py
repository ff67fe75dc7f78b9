"""`evaluate`: protocols on a small run."""

import json
from pathlib import Path

import pytest
from running import mistake

from manyview.cli import main


def test_evaluations_are_printed_and_kept_beside_the_random_encoder(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "knn", str(run), "--data", "scenes:64", "--batch-size", "40"]) == 0
    assert main(["evaluate", "linear", str(run), "--data", "scenes:64", "--images-per-pass", "40"]) == 0
    text = capsys.readouterr().out
    assert "random" in text
    assert "test split" in text
    records = json.loads((run / "evaluations.json").read_text())
    assert {(r["protocol"], r["encoder"]) for r in records} == {
        (protocol, encoder) for protocol in ("knn", "linear") for encoder in ("random", "pixels", "trained")
    }
    assert "pixels: the same images, averaged down to at most 16×16" in text


def test_other_weights_stand_beside_and_any_weights_come_first(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(run / "encoder.safetensors")
    words = ["--data", "scenes:64", "--no-baselines"]
    assert main(["evaluate", "knn", str(run), *words, "--against", file, "random"]) == 0
    assert "pixels" not in capsys.readouterr().out
    records = json.loads((run / "evaluations.json").read_text())
    first, other = records[-1], next(record for record in records if record["encoder"] == file)
    assert (first["encoder"], first["metrics"]) == ("trained", other["metrics"])
    assert main(["evaluate", "recognise", file, *words, "--samples", "16"]) == 0
    assert "recognised" in capsys.readouterr().out
    assert json.loads((run / "evaluations.json").read_text()) == records  # only run directories keep records
    assert "nowhere does not exist" in mistake(capsys, "evaluate", "knn", "nowhere", *words)
    assert "timm has no model 'resnet999'" in mistake(
        capsys, "evaluate", "knn", str(run), *words, "--against", "timm:resnet999"
    )


def test_layers_are_probed_printed_and_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(run), "--data", "scenes:64", "--layer"]
    assert main(["evaluate", "linear", *words, "layer3, layer4,layer3", "--regularisation", "0.01"]) == 0
    assert main(["evaluate", "mlp", *words, "layer4", "--epochs", "2", "--batch-size", "32", "--no-random"]) == 0
    text = capsys.readouterr().out
    assert "layer3" in text
    records = json.loads((run / "evaluations.json").read_text())
    assert records[-1]["settings"]["batch_size"] == 32
    found = [(r["protocol"], r["encoder"], r["layer"]) for r in records]
    layers = [("linear", encoder, layer) for encoder in ("random", "trained") for layer in ("layer3", "layer4")]
    assert [each for each in found if each[2]] == [*layers, ("mlp", "trained", "layer4")]
    message = mistake(capsys, "evaluate", "mlp", *words, "conv5")
    assert "--layer conv5 is no layer of this backbone: take some of conv1, bn1" in message
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "Linear probe on cached features (regularisation 0.01) · scenes · by layer" in page
    assert "top-1 by layer. trained encoder: layer3 " in page


def test_the_probe_with_adam_takes_the_papers_settings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "linear-adam", str(run), "--no-random"]
    assert main([*words, "--data", "scenes:200", "--epochs", "2", "--images-per-pass", "50"]) == 0
    assert "linear-adam" in capsys.readouterr().out
    record = json.loads((run / "evaluations.json").read_text())[-1]
    assert record["protocol"] == "linear-adam"
    assert record["settings"] == {
        **{"epochs": 2, "lr": 0.001, "decay": 0.2, "batch_size": 128, "milestones": [0.6, 0.8]}
    }
    assert "--batch-size 128 is not between 1 and the 64 samples" in mistake(capsys, *words, "--data", "scenes:64")
    assert main(["report", str(run)]) == 0
    assert "Linear probe, Adam with augmentation" in (run / "report.html").read_text()
