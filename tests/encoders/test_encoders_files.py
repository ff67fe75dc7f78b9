"""Encoders on disk."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from networks import MEAN, STD, encoder, images, normalised, saved
from safetensors import safe_open
from torch import Tensor, nn

from manyview.encoders import (
    FrozenEncoder,
    load,
    random_like,
    save_backbone,
)
from manyview.errors import UserError
from manyview.export import export

torch.set_num_threads(1)


def write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None) -> Path:
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    saved(tmp_path / "run" / "encoder.safetensors", encoder())
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"backbone": "tiny"}, 32),
        ({"backbone": "tiny", "bn_splits": 2}, 32),
        ({"backbone": "test_resnet", "stem": "small", "norm": "group"}, 32),
        ({"backbone": "alexnet-small"}, 16),
        ({"backbone": "test_vit"}, 48),
    ],
)
def test_what_was_saved_is_what_is_loaded(tmp_path: Path, config: dict[str, Any], size: int) -> None:
    made = encoder(size, **config)
    frozen = load(saved(tmp_path / "encoder.safetensors", made, size))
    assert (frozen.image_size, frozen.num_features) == (size, made.num_features)
    with torch.no_grad():
        torch.testing.assert_close(frozen(images(size)), made.eval().features(normalised(images(size))))


@pytest.mark.parametrize("config", [{}, {"backbone": "test_resnet", "stem": "small"}, {"backbone": "test_vit"}])
def test_a_file_knows_its_input_channels(tmp_path: Path, config: dict[str, Any]) -> None:
    made = encoder(32, channels=2, **config)
    file = tmp_path / "encoder.safetensors"
    save_backbone(file, made, image_size=32, mean=(0.5, 0.25), std=(0.1, 0.2))
    frozen = load(file)
    assert frozen.card.in_channels == 2
    two = torch.rand(3, 2, 32, 32)
    scaled = (two - torch.tensor([0.5, 0.25]).view(2, 1, 1)) / torch.tensor([0.1, 0.2]).view(2, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(frozen(two), made.eval().features(scaled))
    assert random_like(frozen, 0)(two).shape == (3, made.num_features)
    with pytest.raises(ValueError, match=r"images must be \(N, 2, H, W\), not \(4, 3, 32, 32\)"):
        frozen(images())
    with pytest.raises(UserError, match=r"--format timm has no .*input channels 2: .* written as safetensors or onnx$"):
        export(file, tmp_path / "out.safetensors", "timm")
    export(file, tmp_path / "out.safetensors", "safetensors")
    assert load(tmp_path / "out.safetensors").card == frozen.card


def test_an_encoder_needs_a_mean_for_each_of_its_channels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 channels needs as many means"):
        saved(tmp_path / "encoder.safetensors", encoder(channels=2))


def test_a_run_directory_and_its_file_load_alike(run: Path) -> None:
    by_directory, by_file = load(run), load(str(run / "encoder.safetensors"))
    assert torch.equal(by_directory(images()), by_file(images()))


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    made = encoder()
    first = saved(tmp_path / "a.safetensors", made).read_bytes()
    assert saved(tmp_path / "b.safetensors", made).read_bytes() == first
    with torch.no_grad():
        next(made.backbone.parameters()).add_(1)
    assert saved(tmp_path / "b.safetensors", made).read_bytes() != first


def test_the_file_holds_the_backbone_alone_and_says_what_it_is(run: Path) -> None:
    with safe_open(run / "encoder.safetensors", framework="pt") as file:
        names, metadata = set(file.keys()), json.loads(file.metadata()["manyview"])
    assert names == set(encoder().backbone.state_dict())
    assert metadata == {
        "version": 1,
        "backbone": "tiny",
        "stem": "standard",
        "norm": "batch",
        "image_size": 32,
        "mean": list(MEAN),
        "std": list(STD),
    }


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (run / "encoder.safetensors").read_bytes()

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        saved(run / "encoder.safetensors", encoder(dim=16))
    assert [path.name for path in run.iterdir()] == ["encoder.safetensors"]
    assert (run / "encoder.safetensors").read_bytes() == before


def test_loading_leaves_the_random_state_alone(run: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    random_like(load(run), seed=5)
    assert torch.equal(torch.rand(3), expected)


def test_a_frozen_encoder_has_no_gradient_and_stays_in_eval_mode(run: Path) -> None:
    frozen = load(run)
    before = {name: tensor.clone() for name, tensor in frozen.state_dict().items()}
    assert frozen.train() is frozen
    nn.Sequential(frozen).train()
    assert not any(module.training for module in frozen.modules())
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not frozen(images()).requires_grad
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen.state_dict().items())


def test_bytes_and_floats_give_the_same_features_in_float32(run: Path) -> None:
    frozen = load(run)
    expected = frozen(images())
    assert expected.dtype == torch.float32
    torch.testing.assert_close(frozen(images().float() / 255), expected)
    for dtype in (torch.float16, torch.bfloat16):
        assert frozen((images() / 255).to(dtype)).dtype == torch.float32
    assert frozen(images()[:0]).shape == frozen(images()[:0].float()).shape == (0, 256)


def test_images_of_other_sizes_are_taken_as_they_are(run: Path) -> None:
    assert load(run)(images(48)).shape == (4, 256)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (images()[0], ValueError, r"\(N, 3, H, W\), not \(3, 32, 32\)"),
        (images().permute(0, 2, 3, 1), ValueError, r"\(N, 3, H, W\), not \(4, 32, 32, 3\)"),
        (images().long(), TypeError, "uint8 or float, not torch.int64"),
        (images().float(), ValueError, r"in \[0, 1\], not \[0, 255\]: give uint8, or divide by 255"),
        (normalised(images()), ValueError, r"in \[0, 1\]"),
        (torch.full((1, 3, 32, 32), float("nan")), ValueError, r"in \[0, 1\]"),
    ],
)
def test_anything_but_images_is_refused(run: Path, wrong: Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load(run)(wrong)


def test_a_network_for_one_size_says_which(tmp_path: Path) -> None:
    frozen = load(saved(tmp_path / "vit.safetensors", encoder(48, backbone="test_vit"), 48))
    with pytest.raises(ValueError, match=r"test_vit takes images of 48×48, not \(32, 32\): resize them"):
        frozen(images(32))


def test_a_frozen_copy_does_not_follow_the_training(run: Path) -> None:
    made = encoder()
    frozen = FrozenEncoder.of(made, image_size=32, mean=MEAN, std=STD)
    assert torch.equal(frozen(images()), load(run)(images()))
    assert FrozenEncoder.of(made.double(), image_size=32, mean=MEAN, std=STD)(images()).dtype == torch.float64
    assert made.training
    with torch.no_grad():
        next(made.backbone.parameters()).add_(1)
    assert torch.equal(frozen(images()), load(run)(images()))


def test_the_random_counterpart_is_a_function_of_the_seed(run: Path) -> None:
    frozen = load(run)
    one, same, other = (random_like(frozen, seed) for seed in (1, 1, 2))
    assert one.card == frozen.card
    assert torch.equal(one(images()), same(images()))
    assert not torch.equal(one(images()), other(images()))
    assert not torch.equal(one(images()), frozen(images()))


def test_a_run_without_a_checkpoint_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no encoder.safetensors and no checkpoint: give the --out of a"):
        load(tmp_path)


def test_a_missing_path_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere does not exist: give a run directory, an encoder file"):
        load(tmp_path / "nowhere")


GOOD = {
    "version": 1,
    "backbone": "tiny",
    "stem": "standard",
    "norm": "batch",
    "image_size": 32,
    "mean": [0.5, 0.5, 0.5],
    "std": [0.2, 0.2, 0.2],
}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"backbone": 5},
        {"backbone": "hf-hub:someone/model"},
        {"backbone": "no such network"},
        {"stem": "large"},
        {"stem": ["standard"]},
        {"norm": {}},
        {"image_size": 0},
        {"image_size": 10**9},
        {"image_size": True},
        {"image_size": "32"},
        {"mean": 0.5},
        {"mean": [0.5, 0.5]},
        {"mean": [0.5, 0.5], "std": [0.2, 0.2]},  # the tensors are those of three channels
        {"mean": [], "std": []},
        {"mean": [0.5] * 2000, "std": [0.2] * 2000},
        {"mean": [0.5, 0.5, "x"]},
        {"mean": [0.5, 0.5, float("nan")]},
        {"mean": [0.5, 0.5, 10**400]},
        {"stem": "a\nb\x1b[31m" + "y" * 9999},
        {"std": [0.2, 0.2, 0.0]},
        {"std": [0.2, 0.2, float("inf")]},
        {"std": None},
        {"backbone": "alexnet-small", "image_size": 4096},
        {"backbone": "test_vit", "image_size": 1},
        {"backbone": "test_vit", "stem": "small"},
    ],
)
def test_metadata_out_of_range_is_a_users_error(tmp_path: Path, change: dict[str, Any]) -> None:
    text = json.dumps({**GOOD, **change})
    file = write(tmp_path / "bad.safetensors", encoder().backbone.state_dict(), {"manyview": text})
    with pytest.raises(UserError, match=r"^.*bad.safetensors (holds no usable encoder|does not fit)") as caught:
        load(file)
    assert str(caught.value).isprintable(), "on one line"
    assert len(str(caught.value)) < 700
    for format in ("safetensors", "timm", "torchvision"):
        with pytest.raises(UserError):
            export(file, tmp_path / "out.safetensors", format)


def test_a_small_file_that_names_a_giant_network_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({**GOOD, "backbone": "regnety_2560"})
    file = write(tmp_path / "giant.safetensors", encoder().backbone.state_dict(), {"manyview": text})
    monkeypatch.setattr("manyview.encoders.loading.network_of", lambda card: pytest.fail("it was built"))
    with pytest.raises(UserError, match=r"giant.safetensors does not fit regnety_2560: \d+ tensors differ"):
        load(file)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "{}", "[" * 100_000, '{"version": 1}'])
def test_metadata_that_is_no_card_is_a_users_error(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "bad.safetensors", {"x": torch.zeros(1)}, {"manyview": text})
    with pytest.raises(UserError, match="its metadata is wrong"):
        load(file)


def test_tensors_of_another_network_are_a_users_error(tmp_path: Path) -> None:
    state = encoder().backbone.state_dict()
    for wrong, words in (
        (
            {**state, "conv1.weight": torch.zeros(2, 3, 3, 3)},
            r"conv1.weight, \(2, 3, 3, 3\) in the file and \(32, 3, 3, 3\)",
        ),
        ({name: state[name] for name in state if name != "bn1.bias"}, r"bn1.bias, absent in the file and \(32,\)"),
        ({**state, "extra": torch.zeros(1)}, r"extra, \(1,\) in the file and absent in the network"),
    ):
        file = write(tmp_path / "bad.safetensors", wrong, {"manyview": json.dumps(GOOD)})
        with pytest.raises(UserError, match=rf"does not fit tiny: 1 tensors differ, such as {words}"):
            load(file)
        with pytest.raises(UserError, match="does not fit tiny"):
            export(file, tmp_path / "out.safetensors", "safetensors")


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\xff" * 100, b"PK\x03\x04" + bytes(100)])
def test_a_file_of_another_kind_is_a_users_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"x.safetensors cannot be read as safetensors"):
        load(tmp_path / "x.safetensors")


def test_a_damaged_file_is_a_users_error(run: Path) -> None:
    file = run / "encoder.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UserError, match="cannot be read as safetensors"):
        load(run)


def test_a_file_that_others_wrote_is_a_users_error(tmp_path: Path) -> None:
    file = write(tmp_path / "other.safetensors", {"x": torch.zeros(1)}, None)
    with pytest.raises(UserError, match="holds the weights of no network that manyview recognises"):
        load(file)
