"""The code of the guide runs as it stands, but for its size."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision.datasets import FakeData

import manyview
from manyview.cli import main
from manyview.data import open_source
from manyview.encoders import EncoderConfig, build_encoder, save_backbone
from manyview.evaluate.features import extract

GUIDE = (Path(__file__).parents[1] / "docs" / "GUIDE.md").read_text(encoding="utf-8")


def blocks(heading: str) -> list[str]:
    """The Python below a heading, up to the next one."""
    section = GUIDE.split(f"# {heading}\n", 1)[1]
    return re.findall(r"```python\n(.*?)```", re.split(r"\n#+ [A-Z]", section)[0], re.DOTALL)


def run(code: str, changes: dict[str, str], **given: Any) -> dict[str, Any]:
    """What the code leaves behind, with some of its words changed."""
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    exec(compile(code, "GUIDE.md", "exec"), given)
    return given


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the guide's training loop has run for two steps."""
    place = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        (loop,) = blocks("A training loop")
        left = run(loop, {'"scenes"': '"scenes:128"', "20 * (len(source) // 64)": "2"})
    assert left["views"].shape == (6, 64, 3, 32, 32)
    assert torch.isfinite(left["loss"])
    assert int(left["queue"].pushed) == 128
    return place


@pytest.fixture
def place(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


def test_the_loop_computes_what_pretrain_does(place: Path) -> None:
    few = ["--data", "scenes:128", "--max-steps", "2", "--contrast-every", "0", "--queue-size", "16", "--no-mask-own"]
    assert main(["pretrain", "jcl", *few, "--out", "run"]) == 0
    theirs, ours = (load_file(name) for name in ("run/encoder.safetensors", "mine.safetensors"))
    assert theirs.keys() == ours.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_images_of_your_own(place: Path) -> None:
    fake = FakeData(size=64, image_size=(3, 80, 70))
    (own,), (loop,) = blocks("Images of your own"), blocks("A training loop")
    download = {"from torchvision.datasets import Flowers102\n": "", 'Flowers102("data", download=True)': "fake"}
    left = run(own, download, fake=fake)
    assert open_source("flowers.safetensors").size == (64, 64)
    small = {"20 * (len(source) // 64)": "2", "batch_size=64": "batch_size=16", "mine.safe": "other.safe"}
    run(loop, {'open_source("scenes")': "own", **small}, own=left["source"])
    labelled = left["Shown"]("labelled", fake, [number % 3 for number in range(64)])
    assert extract(manyview.load("other.safetensors"), labelled).labels.tolist() == labelled.labels.tolist()


def test_training_on(place: Path) -> None:
    (code,) = blocks("Training on")
    left = run(code, {})
    assert left["maps"]["layer1"].requires_grad
    assert all(weight.grad is not None for weight in left["network"].parameters())
    assert not left["features"].requires_grad
    torch.testing.assert_close(left["network"].eval()(left["images"]), left["features"])
    assert not torch.equal(left["features"], manyview.load("mine.safetensors")(left["images"]))


def test_evaluating_from_python(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("Evaluating from Python")
    left = run(code, {'"scenes"': '"scenes:128"'})
    assert re.findall(r"^(\w+ \w+) \d", capsys.readouterr().out, re.MULTILINE) == [
        f"{protocol} {encoder}" for encoder in ("random", "trained") for protocol in ("knn", "linear")
    ]
    assert len(left["train"]) + len(left["test"]) == 128


def test_features_of_a_whole_set_are_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    shown: dict[str, Any] = {}
    brain = SimpleNamespace(compute_visualization=lambda images, **how: shown.update(how, images=images))
    monkeypatch.setitem(
        sys.modules, "fiftyone", SimpleNamespace(Dataset=SimpleNamespace(from_images=list), brain=brain)
    )
    monkeypatch.setitem(sys.modules, "fiftyone.brain", brain)
    assert main(["embed", "mine.safetensors", "--data", "scenes:64", "--out", "features.parquet"]) == 0
    (code,) = blocks("Features of a whole set")
    run(code, {})
    assert shown["images"] == [f"photos/train/{number}" for number in range(64)]
    assert shown["embeddings"].shape == (64, 256)


def test_what_was_learnt_is_used_and_fine_tuned(place: Path) -> None:
    network = build_encoder(EncoderConfig(backbone="resnet18"), image_size=32)
    channels = (0.5, 0.5, 0.5)
    save_backbone("resnet18.safetensors", network, image_size=32, mean=channels, std=channels)
    images = torch.rand(4, 3, 32, 32)
    use, (from_timm, taken_out) = blocks("Using what was learnt")[0], blocks("Fine-tuning")
    Image.new("RGB", (60, 40), "orange").save("cat.jpg")
    found = run(use, {"runs/photos": "resnet18.safetensors"}, images=images)
    assert found["features"].shape == (4, 512)
    assert found["of_one"].shape == (1, 512)
    command = re.search(r"^# manyview (.*)$", from_timm, re.MULTILINE)
    assert command is not None
    words = command[1].replace("runs/photos", "resnet18.safetensors").replace("resnet50", "exported").split()
    assert main(words) == 0
    tuned = run(from_timm, {"resnet50.safetensors": "exported.safetensors", '"resnet50"': '"resnet18"'})["model"]
    frozen = manyview.load("resnet18.safetensors")
    features = tuned.eval().forward_features((images - 0.5) / 0.5)
    torch.testing.assert_close(tuned.forward_head(features, pre_logits=True), frozen(images))
    model = run(taken_out, {})["model"]
    frozen = manyview.load("mine.safetensors")
    torch.testing.assert_close(model.eval()[:1](images), frozen(images))
    model.train()(images).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
