"""A run evaluated beside its random counterpart, and the records that it leaves."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rich.console import Console

from manyview import counter
from manyview.encoders import EncoderConfig, build_encoder, load, random_like, save_backbone
from manyview.errors import UserError
from manyview.evaluate import (
    PROTOCOLS,
    Features,
    Knn,
    Linear,
    LinearAdam,
    LinearSgd,
    Mlp,
    Protocol,
    append_record,
    evaluate,
    extract,
    read_records,
    table,
)

torch.set_num_threads(1)
FIELDS = {
    *("protocol", "encoder", "layer", "views", "data", "test_data", "preprocess", "settings", "seconds"),
    *("top1", "top1_interval", "top5", "top5_interval", "train_samples", "test_samples", "classes", "unreadable"),
    "train_top1",
}


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three classes that differ in colour."""
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    for label, name in enumerate(("blue", "green", "red")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(30):
            pixels = (100 * counter.uniform(label, number, torch.arange(16 * 16 * 3))).to(torch.uint8).view(16, 16, 3)
            pixels[..., 2 - label] += 120
            Image.fromarray(pixels.numpy()).save(tmp_path / "photos" / name / f"{number}.png")
    return str(tmp_path / "photos")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    directory = tmp_path / "run"
    directory.mkdir()
    encoder = build_encoder(EncoderConfig(backbone="tiny"))
    save_backbone(directory / "encoder.safetensors", encoder, image_size=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    return directory


@pytest.mark.parametrize(
    "protocol",
    [
        Knn(k=5),
        Linear(regularisation=(1.0, 0.01)),
        Mlp(epochs=10),
        LinearSgd(epochs=2, lr=1, batch_size=16),
        LinearAdam(epochs=2, lr=0.1, batch_size=16),
    ],
)
def test_trained_and_random_are_measured_alike_and_recorded(protocol: Protocol, run: Path, photos: str) -> None:
    records = evaluate(run, protocol, photos, batch_size=16, progress=False)
    assert [record["encoder"] for record in records] == ["random", "trained"]
    for record in records:
        assert set(record) == FIELDS
        assert record["layer"] is None
        assert PROTOCOLS[record["protocol"]] is type(protocol)
        assert record["test_data"] == "20 % held out by hash"
        assert record["preprocess"].startswith("16×16 as stored")
        assert record["train_samples"] + record["test_samples"] == 90
        assert (record["classes"], record["top5"]) == (3, None)
        assert (record["train_top1"] is None) == isinstance(protocol, Knn)
        assert 0 <= record["top1_interval"][0] <= record["top1"] <= record["top1_interval"][1] <= 1
    assert read_records(run) == json.loads(json.dumps(records))
    assert records[1]["top1"] > 0.5


def test_a_classifier_is_trained_in_the_batches_of_its_protocol(run: Path, photos: str) -> None:
    protocols = Mlp(epochs=2), LinearAdam(epochs=2, batch_size=24)
    passes = [evaluate(run, protocols, photos, random=False, batch_size=images, progress=False) for images in (30, 256)]
    for records in passes:
        batches = {record["protocol"]: record["settings"]["batch_size"] for record in records}
        assert batches == {"mlp": 64, "linear-adam": 24}
    assert [record["top1"] for record in passes[0]] == [record["top1"] for record in passes[1]]


@pytest.mark.parametrize("protocol", [Knn(k=5), Linear(regularisation=(0.01,)), Mlp(epochs=5)])
def test_layers_have_a_record_each(protocol: Protocol, run: Path, photos: str) -> None:
    records = evaluate(run, protocol, photos, layers=["layer3", "layer1"], batch_size=16, progress=False)
    pairs = [(record["encoder"], record["layer"]) for record in records]
    assert pairs == [(encoder, layer) for encoder in ("random", "trained") for layer in ("layer3", "layer1")]
    assert all(set(record) == FIELDS and record["top1"] > 0.5 for record in records)
    assert read_records(run) == json.loads(json.dumps(records))
    evaluate(run, protocol, photos, random=False, batch_size=16, progress=False)  # of the features: another thing
    assert [record["layer"] for record in read_records(run)] == ["layer3", "layer1"] * 2 + [None]


def test_the_features_are_a_layer_too(run: Path, photos: str) -> None:
    layer = evaluate(run, Knn(k=5), photos, layers=["global_pool"], random=False, progress=False)[0]
    features = evaluate(run, Knn(k=5), photos, random=False, progress=False)[0]
    assert {**layer, "layer": None, "seconds": 0} == {**features, "seconds": 0}


def test_a_layer_that_is_not_there_is_said_before_the_data_is_opened(run: Path) -> None:
    words = r"--layer conv9,x is no layer of this backbone: take some of conv1, bn1, act1, maxpool, layer1, layer2, "
    with pytest.raises(UserError, match=words):
        evaluate(run, Linear(), "no such data", layers=["layer1", "conv9", "x"], progress=False)


@pytest.mark.parametrize(("protocol", "name"), [(LinearSgd(), "linear-sgd"), (LinearAdam(), "linear-adam")])
def test_protocols_that_train_on_images_have_no_layers(protocol: Protocol, name: str, run: Path, photos: str) -> None:
    with pytest.raises(UserError, match=f"--layer layer1: {name} has no layers; take linear, mlp or knn"):
        evaluate(run, protocol, photos, layers=["layer1"], progress=False)


def test_protocols_share_the_pass_over_the_data(run: Path, photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [evaluate(run, each, photos, random=False, progress=False)[0] for each in (Knn(k=5), Linear((0.01,)))]
    passes = []

    def counted(*arguments: Any, **settings: Any) -> Features:
        passes.append(1)
        return extract(*arguments, **settings)

    monkeypatch.setattr("manyview.evaluate.run.extract", counted)
    together = evaluate(run, (Knn(k=5), Linear((0.01,))), photos, random=False, progress=False)
    assert len(passes) == 2  # the training images and the test images
    assert [{**record, "seconds": 0} for record in together] == [{**record, "seconds": 0} for record in alone]


def test_random_baseline_can_be_left_out(run: Path, photos: str) -> None:
    assert [record["encoder"] for record in evaluate(run, Knn(), photos, random=False, progress=False)] == ["trained"]


def test_an_encoder_file_is_evaluated_without_a_record(run: Path, photos: str) -> None:
    records = evaluate(run / "encoder.safetensors", Knn(), photos, progress=False)
    assert len(records) == 2
    assert not (run / "evaluations.json").exists()


def test_an_encoder_in_memory_is_judged_as_its_file_and_leaves_no_record(run: Path, photos: str) -> None:
    file, memory = (
        evaluate(each, Knn(k=5), photos, progress=False) for each in (run / "encoder.safetensors", load(run))
    )
    assert [{**record, "seconds": 0} for record in memory] == [{**record, "seconds": 0} for record in file]
    assert sorted(path.name for path in run.iterdir()) == ["encoder.safetensors"]


def test_random_encoder_is_not_the_trained_one(run: Path) -> None:
    trained = load(run)
    images = torch.full((1, 3, 16, 16), 99, dtype=torch.uint8)
    assert not torch.allclose(trained(images), random_like(trained, 0)(images))


def test_unreadable_images_are_counted(run: Path, photos: str) -> None:
    Path(photos, "red", "broken.png").write_bytes(b"no image")
    record = evaluate(run, Knn(), photos, random=False, progress=False)[0]
    assert record["unreadable"] == 1
    assert record["train_samples"] + record["test_samples"] == 90


def record(**changes: object) -> dict[str, object]:
    return {
        "protocol": "knn",
        "encoder": "trained",
        "data": "scenes",
        "test_data": "scenes (test split)",
        "top1": 0.714,
        "top1_interval": [0.70, 0.73],
        "top5": 0.95,
        "top5_interval": [0.94, 0.96],
        "train_samples": 10_000,
        "test_samples": 2_000,
        "classes": 10,
        "settings": {"k": 200},
        "preprocess": "32×32 as stored",
        "unreadable": 0,
        "seconds": 1.0,
    } | changes


def test_newer_record_of_the_same_thing_replaces_the_older_one(tmp_path: Path) -> None:
    append_record(tmp_path, record(top1=0.1))
    append_record(tmp_path, record(encoder="random"))
    append_record(tmp_path, record(protocol="linear"))
    append_record(tmp_path, record(data="photos"))
    append_record(tmp_path, record(top1=0.2))
    found = [(old["protocol"], old["encoder"], old["data"], old["top1"]) for old in read_records(tmp_path)]
    assert found == [
        ("knn", "random", "scenes", 0.714),
        ("linear", "trained", "scenes", 0.714),
        ("knn", "trained", "photos", 0.714),
        ("knn", "trained", "scenes", 0.2),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["evaluations.json"]


def test_a_record_from_before_there_were_layers_is_replaced_by_that_of_the_features(tmp_path: Path) -> None:
    append_record(tmp_path, record(top1=0.1))
    append_record(tmp_path, record(layer="conv1"))
    append_record(tmp_path, record(layer=None, top1=0.2))
    assert [(old["layer"], old["top1"]) for old in read_records(tmp_path)] == [("conv1", 0.714), (None, 0.2)]


@pytest.mark.parametrize("content", ["[{", '{"top1": 1}', "[1]"])
def test_damaged_records_are_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "evaluations.json").write_text(content)
    with pytest.raises(UserError, match=r"evaluations\.json"):
        append_record(tmp_path, record())
    assert (tmp_path / "evaluations.json").read_text() == content


def test_table_shows_the_figures_and_says_how_they_came_about() -> None:
    console = Console(width=120, file=io.StringIO())
    console.print(table([record(encoder="random", top1=0.31, top5=None, top5_interval=None), record(unreadable=3)]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    rows = [line for line in text.splitlines() if "knn" in line]
    assert "random" in rows[0]
    assert "31.0 % [70.0, 73.0]" in rows[0]
    assert "71.4 % [70.0, 73.0]" in rows[1]
    assert "95.0 % [94.0, 96.0]" in rows[1]
    assert "10,000" in rows[1]
    assert "images: 32×32 as stored" in text
    assert "scenes (test split)" in text
    assert "3 unreadable images left out" in text
    assert text.count("32×32 as stored") == 1


def test_table_has_a_row_for_each_layer() -> None:
    console = Console(width=140, file=io.StringIO())
    console.print(table([record(layer="conv1"), record(layer="fc7"), record()]))
    assert isinstance(console.file, io.StringIO)
    cells = [line.split("│")[3].strip() for line in console.file.getvalue().splitlines() if "knn" in line]
    assert cells == ["conv1", "fc7", "–"]
