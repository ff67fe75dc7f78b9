"""Views that are recognised without labels."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from manyview import counter
from manyview.encoders import EncoderConfig, build_encoder, save_backbone
from manyview.errors import UserError
from manyview.evaluate.recognise import Recognise, recognised
from manyview.evaluate.records import read_records
from manyview.evaluate.run import evaluate


def test_a_view_is_recognised_when_another_view_of_its_image_is_nearest() -> None:
    views = torch.randn(3, 5, 8, dtype=torch.float64)
    centred = views - views.mean((0, 1))
    for number in range(5):
        hits = 0
        for view in range(3):
            own = centred[view, number] / centred[view, number].norm()
            others = [(v, n) for v in range(3) for n in range(5) if (v, n) != (view, number)]
            best = max(others, key=lambda each: float(own @ centred[each] / centred[each].norm()))
            hits += best[1] == number
        assert float(recognised(views)[number]) == pytest.approx(hits / 3)


def test_copies_are_always_recognised_and_a_constant_is_not_in_the_way() -> None:
    one = torch.randn(1, 20, 6)
    assert recognised(torch.cat([one, one]) + 100).tolist() == [1.0] * 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    encoder = build_encoder(EncoderConfig(backbone="tiny"))
    save_backbone(tmp_path / "run" / "encoder.safetensors", encoder, image_size=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    return tmp_path / "run"


def test_images_without_labels_are_enough(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(24):
        pixels = (255 * counter.uniform(7, number, torch.arange(20 * 20 * 3))).to(torch.uint8).view(20, 20, 3)
        Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")
    records = evaluate(run, Recognise(samples=20), str(folder), against=["pixels"], progress=False)
    assert [record.encoder for record in records] == ["random", "pixels", "trained"]
    assert read_records(run) == records
    for record in records:
        assert record.result.headline == "recognised"
        assert record.result.facts == {"test_samples": 20, "chance": pytest.approx(1 / 39)}
        interval = record.result.main.interval
        assert interval is not None
        assert 0 <= interval[0] <= record.result.value <= interval[1] <= 1
    again = evaluate(run, Recognise(samples=20), str(folder), random=False, progress=False)
    assert again[0].result == records[-1].result  # alone as beside others


def test_one_image_cannot_be_told_apart(run: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "one" / "a.png")
    with pytest.raises(UserError, match="has 1 readable images: two are needed"):
        evaluate(run, Recognise(), str(tmp_path / "one"), progress=False)
    with pytest.raises(UserError, match="--samples 1"):
        Recognise(samples=1)
