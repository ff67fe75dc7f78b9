"""A run evaluated beside its random counterpart, and the records that it leaves."""

import io
import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rich.console import Console

from manyview import counter
from manyview.data import Source, open_source
from manyview.encoders import EncoderConfig, build_encoder, load, random_like, save_backbone
from manyview.errors import UserError
from manyview.evaluate import find
from manyview.evaluate.features import Features, extract_all
from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.evaluate.linear_adam import LinearAdam
from manyview.evaluate.linear_sgd import LinearSgd
from manyview.evaluate.mlp import Mlp
from manyview.evaluate.protocol import Protocol
from manyview.evaluate.records import Record, add_record, comparisons, read_records
from manyview.evaluate.result import Metric, Result
from manyview.evaluate.run import evaluate, table

torch.set_num_threads(1)


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
    assert [record.encoder for record in records] == ["random", "trained"]
    for record in records:
        result = record.result
        assert record.layer is None
        assert find(record.protocol) is type(protocol)
        assert record.settings == protocol.settings
        assert record.test_data == "20 % held out by hash"
        assert result.preprocess.startswith("16×16 as stored")
        assert result.facts["train_samples"] + result.facts["test_samples"] == 90
        assert (result.facts["classes"], list(result.metrics)) == (3, ["top-1"])
        assert ("fitted" in result.facts) != isinstance(protocol, Knn)
        assert result.main.interval is not None
        assert 0 <= result.main.interval[0] <= result.value <= result.main.interval[1] <= 1
    assert read_records(run) == records
    assert records[1].result.value > 0.5


def test_a_classifier_is_trained_in_the_batches_of_its_protocol(run: Path, photos: str) -> None:
    protocols = Mlp(epochs=2), LinearAdam(epochs=2, batch_size=24)
    passes = [evaluate(run, protocols, photos, random=False, batch_size=images, progress=False) for images in (30, 256)]
    for records in passes:
        batches = {record.protocol: record.settings["batch_size"] for record in records}
        assert batches == {"mlp": 64, "linear-adam": 24}
    assert [record.result for record in passes[0]] == [record.result for record in passes[1]]


@pytest.mark.parametrize("protocol", [Knn(k=5), Linear(regularisation=(0.01,)), Mlp(epochs=5)])
def test_layers_have_a_record_each(protocol: Protocol, run: Path, photos: str) -> None:
    records = evaluate(run, protocol, photos, layers=["layer3", "layer1"], batch_size=16, progress=False)
    pairs = [(record.encoder, record.layer) for record in records]
    assert pairs == [(encoder, layer) for encoder in ("random", "trained") for layer in ("layer3", "layer1")]
    assert all(record.result.value > 0.5 for record in records)
    assert read_records(run) == records
    evaluate(run, protocol, photos, random=False, batch_size=16, progress=False)  # of the features: another thing
    assert [record.layer for record in read_records(run)] == ["layer3", "layer1"] * 2 + [None]


def test_the_features_are_a_layer_too(run: Path, photos: str) -> None:
    layer = evaluate(run, Knn(k=5), photos, layers=["global_pool"], random=False, progress=False)[0]
    features = evaluate(run, Knn(k=5), photos, random=False, progress=False)[0]
    assert replace(layer, layer=None, seconds=0) == replace(features, seconds=0)


def test_a_layer_that_is_not_there_is_said_before_the_data_is_opened(run: Path) -> None:
    words = r"--layer conv9,x is no layer of this backbone: take some of conv1, bn1, act1, maxpool, layer1, layer2, "
    with pytest.raises(UserError, match=words):
        evaluate(run, Linear(), "no such data", layers=["layer1", "conv9", "x"], progress=False)


@pytest.mark.parametrize(("protocol", "name"), [(LinearSgd(), "linear-sgd"), (LinearAdam(), "linear-adam")])
def test_protocols_that_train_on_images_have_no_layers(protocol: Protocol, name: str, run: Path, photos: str) -> None:
    with pytest.raises(UserError, match=f"--layer layer1: {name} has no layers; take one of knn, linear, mlp"):
        evaluate(run, protocol, photos, layers=["layer1"], progress=False)


def test_protocols_share_the_pass_over_the_data(run: Path, photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [evaluate(run, each, photos, random=False, progress=False)[0] for each in (Knn(k=5), Linear((0.01,)))]
    passes = counted(monkeypatch)
    together = evaluate(run, (Knn(k=5), Linear((0.01,))), photos, random=False, progress=False)
    assert len(passes) == 2  # the training images and the test images
    assert [replace(record, seconds=0) for record in together] == [replace(record, seconds=0) for record in alone]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every pass over images, by the number of its encoders."""
    passes = []

    def counting(encoders: Any, *arguments: Any, **settings: Any) -> list[dict[str, Features]]:
        passes.append(len(encoders))
        return extract_all(encoders, *arguments, **settings)

    monkeypatch.setattr("manyview.evaluate.protocol.extract_all", counting)
    return passes


def test_encoders_share_the_pass_and_have_the_results_that_they_have_alone(
    run: Path, photos: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that take images of other sizes."""
    torch.manual_seed(4)
    other = build_encoder(EncoderConfig(backbone="tiny"))
    save_backbone(run / "start.safetensors", other, image_size=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    save_backbone(run / "larger.safetensors", other, image_size=24, mean=(0.5,) * 3, std=(0.25,) * 3)
    larger = str(run / "larger.safetensors")
    passes = counted(monkeypatch)
    records = evaluate(run, Knn(k=5), photos, against=["pixels", "start", larger], progress=False)
    assert [record.encoder for record in records] == ["random", "pixels", "start", larger, "trained"]
    assert passes == [5, 5]
    for record, file in zip(records[2:], ("start", "larger", "encoder"), strict=True):
        [alone] = evaluate(run / f"{file}.safetensors", Knn(k=5), photos, random=False, progress=False)
        assert record.result == alone.result
    assert read_records(run) == records


def test_every_image_is_decoded_once_for_all_encoders(run: Path, photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (40, 300)).save(Path(photos, "red", "long.png"))  # photographs of various sizes stay files
    decoded: list[int] = []
    whole = type(open_source(photos))
    read = whole.read

    def counting(self: Source, index: int) -> dict[str, torch.Tensor]:
        decoded.append(index)
        return read(self, index)

    monkeypatch.setattr(whole, "read", counting)
    evaluate(run, Knn(k=5), photos, random=False, progress=False)
    alone = sorted(decoded)
    decoded.clear()
    assert len(evaluate(run, Knn(k=5), photos, against=["pixels"], progress=False)) == 3
    assert sorted(decoded) == alone


def test_what_cannot_be_compared_is_said_before_the_data_is_opened(run: Path) -> None:
    with pytest.raises(UserError, match=r"--against start: .* did not begin from given weights"):
        evaluate(run, Knn(), "no such data", against=["start"], progress=False)
    with pytest.raises(UserError, match="--against: nowhere does not exist: give a run directory"):
        evaluate(run, Knn(), "no such data", against=["nowhere"], progress=False)
    with pytest.raises(UserError, match="--against pixels: pixels have no layers, such as layer1: leave them out"):
        evaluate(run, Knn(), "no such data", layers=["layer1"], against=["pixels"], progress=False)


def test_random_baseline_can_be_left_out(run: Path, photos: str) -> None:
    assert [record.encoder for record in evaluate(run, Knn(), photos, random=False, progress=False)] == ["trained"]


def test_an_encoder_file_is_evaluated_without_a_record(run: Path, photos: str) -> None:
    records = evaluate(run / "encoder.safetensors", Knn(), photos, progress=False)
    assert len(records) == 2
    assert not (run / "evaluations.json").exists()


def test_an_encoder_in_memory_is_judged_as_its_file_and_leaves_no_record(run: Path, photos: str) -> None:
    file, memory = (
        evaluate(each, Knn(k=5), photos, progress=False) for each in (run / "encoder.safetensors", load(run))
    )
    assert [replace(record, seconds=0) for record in memory] == [replace(record, seconds=0) for record in file]
    assert sorted(path.name for path in run.iterdir()) == ["encoder.safetensors"]


def test_random_encoder_is_not_the_trained_one(run: Path) -> None:
    trained = load(run)
    images = torch.full((1, 3, 16, 16), 99, dtype=torch.uint8)
    assert not torch.allclose(trained(images), random_like(trained, 0)(images))


def test_unreadable_images_are_counted(run: Path, photos: str) -> None:
    Path(photos, "red", "broken.png").write_bytes(b"no image")
    record = evaluate(run, Knn(), photos, random=False, progress=False)[0]
    assert record.result.unreadable == 1
    assert record.result.facts["train_samples"] + record.result.facts["test_samples"] == 90


def result(value: float = 0.714, **changes: Any) -> Result:
    metrics = {"top-1": Metric(value, (0.70, 0.73)), "top-5": Metric(0.95, (0.94, 0.96))}
    facts = {"train_samples": 10_000, "test_samples": 2_000, "classes": 10}
    return replace(Result(metrics, "top-1", facts, "32×32 as stored"), **changes)


def record(value: float = 0.714, **changes: Any) -> Record:
    one = Record("knn", Knn().settings, "trained", "scenes", "scenes (test split)", result(value), seconds=1.0)
    return replace(one, **changes)


def test_newer_record_of_the_same_thing_replaces_the_older_one(tmp_path: Path) -> None:
    add_record(tmp_path, record(0.1))
    others = [
        record(encoder="random"),
        record(protocol="linear"),
        record(data="photos"),
        record(test_data="20 % held out by hash"),
        record(layer="conv1"),
        record(views="L"),
        record(settings=Knn(k=20).settings),
    ]
    for other in others:
        add_record(tmp_path, other)
    add_record(tmp_path, record(0.2))
    assert read_records(tmp_path) == [*others, record(0.2)]
    assert {path.name for path in tmp_path.iterdir()} == {"evaluations.json", ".evaluations.json.lock"}


def test_only_the_encoder_differs_between_what_is_compared() -> None:
    random, trained, other = record(0.3, encoder="random"), record(0.7), record(0.8, settings=Knn(k=20).settings)
    assert comparisons([random, trained, other]) == [{"random": random, "trained": trained}, {"trained": other}]
    fewer = record(0.9, result=result(facts={**trained.result.facts, "train_samples": 600}))  # scenes:600
    assert comparisons([random, fewer]) == [{"random": random}, {"trained": fewer}]


OLD = {
    "protocol": "knn",
    "encoder": "trained",
    "data": "scenes",
    "test_data": "scenes (test split)",
    "top1": 0.714,
    "top1_interval": [0.70, 0.73],
    "top5": None,
    "top5_interval": None,
    "train_samples": 10_000,
    "test_samples": 2_000,
    "classes": 10,
    "settings": {"k": 200, "temperature": 0.07},
    "preprocess": "32×32 as stored",
    "unreadable": 2,
    "seconds": 1.0,
    "train_top1": None,
}


def test_records_of_0_1_0_are_read_and_replaced_by_newer_ones(tmp_path: Path) -> None:
    linear = {**OLD, "protocol": "linear", "settings": {"regularisation": 0.01}, "train_top1": 0.9, "layer": "conv1"}
    other = {**linear, "encoder": "random", "settings": {"regularisation": 0.1}}
    (tmp_path / "evaluations.json").write_text(json.dumps([OLD, linear, other]))
    knn, probe, random = read_records(tmp_path)
    assert knn.result.metrics == {"top-1": Metric(0.714, (0.70, 0.73))}
    assert (knn.layer, knn.views, knn.result.unreadable, knn.seconds, knn.special) == (None, None, 2, 1.0, {})
    assert knn.result.facts.items() >= {"train_samples": 10_000, "classes": 10, "k": 200}.items()
    assert probe.result.facts.items() >= {"fitted": 0.9, "regularisation": 0.01}.items()
    assert comparisons([probe, random]) == [{"trained": probe, "random": random}]  # each with its own choice
    add_record(tmp_path, record(0.2))
    assert read_records(tmp_path) == [probe, random, record(0.2)]


def add_many(run: Path, first: int) -> None:
    for number in range(first, first + 25):
        add_record(run, record(layer=f"layer{number}"))


def test_two_processes_lose_no_record(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=add_many, args=(tmp_path, first)) for first in (0, 25)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {each.layer for each in read_records(tmp_path)} == {f"layer{number}" for number in range(50)}


@pytest.mark.parametrize("content", ["[{", '{"top1": 1}', "[1]"])
def test_damaged_records_are_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "evaluations.json").write_text(content)
    with pytest.raises(UserError, match=r"evaluations\.json"):
        add_record(tmp_path, record())
    assert (tmp_path / "evaluations.json").read_text() == content


def test_an_entry_that_cannot_be_used_is_left_out_and_kept(tmp_path: Path) -> None:
    broken = [{"protocol": "knn"}, {"metrics": {"mIoU": {"value": "high"}}, "headline": "mIoU"}]
    (tmp_path / "evaluations.json").write_text(json.dumps(broken))
    add_record(tmp_path, record())
    assert read_records(tmp_path) == [record()]
    assert json.loads((tmp_path / "evaluations.json").read_text())[:2] == broken


def printed(records: list[Record]) -> str:
    console = Console(width=140, file=io.StringIO())
    console.print(table(records))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_table_shows_the_figures_and_says_how_they_came_about() -> None:
    few = result(0.31, metrics={"top-1": Metric(0.31, (0.70, 0.73))})
    text = printed([record(encoder="random", result=few), record(result=result(unreadable=3))])
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


def test_table_takes_any_metric_and_names_special_settings() -> None:
    found = Result({"mIoU": Metric(0.5), "error [m]": Metric(0.123456, (0.1, 0.2), "")}, "mIoU", {"test_samples": 7})
    text = printed([record(protocol="segment", settings={"lr": 0.1}, result=found), record(settings=Knn(20).settings)])
    [segment, knn] = [line for line in text.splitlines() if "trained" in line]
    assert [cell.strip() for cell in segment.split("│")[1:-1]] == [
        *("segment lr=0.1", "trained", "50.0 %", "0.123 [0.100, 0.200]", "–", "–", "–", "7", "–")
    ]
    assert "knn k=20" in knn
    assert "error [m] [95 %]" in text


def test_table_has_a_row_for_each_layer() -> None:
    text = printed([record(layer="conv1"), record(layer="fc7"), record()])
    assert [line.split("│")[3].strip() for line in text.splitlines() if "knn" in line] == ["conv1", "fc7", "–"]
