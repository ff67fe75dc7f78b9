"""Weights from anywhere, and runs that start from them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
import torchvision
from torch import Tensor, nn

from manyview.encoders import EncoderConfig, build_encoder, initialise, load, open_weights, save_backbone
from manyview.encoders.features import card_of
from manyview.encoders.files import card_as_text
from manyview.encoders.weights import Weights
from manyview.errors import UserError

torch.set_num_threads(1)

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def network(name: str, **more: Any) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = timm.create_model(name, **{"num_classes": 0, **more}).eval()
    for buffer in made.buffers():  # statistics that a fresh network does not have
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return made


def start(weights: Weights, image_size: int, channels: int = 3, **changes: Any) -> nn.Module:
    config = EncoderConfig(**{"backbone": weights.card.backbone, "stem": weights.card.stem, **changes})
    encoder = build_encoder(config, image_size=image_size, in_channels=channels)
    initialise(encoder, weights)
    return encoder.backbone.eval()


def with_prefix(prefix: str) -> Callable[[dict[str, Tensor]], dict[str, Any]]:
    return lambda tensors: {"state_dict": {prefix + name: each for name, each in tensors.items()}, "epoch": 3}


def as_list(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Of nn.Sequential(*list(resnet.children())[:-1])."""
    places = {"conv1": 0, "bn1": 1, "layer1": 4, "layer2": 5, "layer3": 6, "layer4": 7}
    return {
        f"backbone.{places[name.partition('.')[0]]}.{name.partition('.')[2]}": each
        for name, each in tensors.items()
        if name.partition(".")[0] in places
    }


@pytest.mark.parametrize(
    "written",
    [
        dict,
        with_prefix(""),
        with_prefix("module."),
        with_prefix("module.encoder_q."),
        with_prefix("module.base_encoder."),
        with_prefix("_orig_mod.backbone."),
        as_list,
    ],
    ids=["bare", "container", "ddp", "moco", "moco-v3", "compiled", "layers"],
)
def test_the_names_of_other_programs_are_recognised(
    written: Callable[[dict[str, Tensor]], dict[str, Any]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.resnet18().eval()
    torch.save(written(theirs.state_dict()), tmp_path / "weights.pth")
    ours = load(tmp_path / "weights.pth")
    assert (ours.card.backbone, ours.card.stem, ours.card.image_size) == ("resnet18", "standard", 224)
    assert (ours.card.mean, ours.card.std) == IMAGENET
    theirs.fc = nn.Identity()
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours.backbone(x), theirs(x))


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "convnext_tiny", "mobilenetv3_large_100"])
def test_the_files_of_timm_are_recognised_with_their_classifier(name: str, tmp_path: Path) -> None:
    theirs = network(name, num_classes=7)
    safetensors.torch.save_file(dict(theirs.state_dict()), tmp_path / "model.safetensors")
    weights = open_weights(tmp_path / "model.safetensors")
    assert weights.card.backbone == name
    x = torch.randn(1, 3, 224, 224)
    theirs.reset_classifier(0)  # type: ignore[operator]
    torch.testing.assert_close(start(weights, 224)(x), theirs(x))


def test_a_network_that_is_not_common_is_named(tmp_path: Path) -> None:
    theirs = network("resnet14t", num_classes=3)
    safetensors.torch.save_file(dict(theirs.state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="recognises: name it by --backbone"):
        open_weights(tmp_path / "model.safetensors")
    assert open_weights(tmp_path / "model.safetensors", "resnet14t").card.backbone == "resnet14t"
    with pytest.raises(UserError, match=r"does not fit --backbone resnet34: \d+ tensors differ"):
        open_weights(tmp_path / "model.safetensors", "resnet34")


def test_a_folder_of_the_hub_says_what_it_is(tmp_path: Path) -> None:
    theirs = network("resnet14t", num_classes=3)
    timm.models.save_for_hf(theirs, str(tmp_path), safe_serialization=True)
    weights = open_weights(tmp_path)
    assert weights.card.backbone == "resnet14t"
    assert weights.card.mean == tuple(theirs.pretrained_cfg["mean"])  # type: ignore[index]
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "hf-hub:someone/else"}))
    with pytest.raises(UserError, match="timm does not know"):
        open_weights(tmp_path)
    said = {"architecture": "resnet14t", "mean": [0.5] * 3, "std": [1.0] * 3, "input_size": [3, 64, 64]}
    wrong: list[dict[str, Any]] = [
        {"input_size": [3, 64, 1e999]},
        {"input_size": [3, 64, 1 << 40]},
        {"mean": [10**400] * 3},
        {"std": [1.0]},
    ]
    for content in ("[1", "[" * 100_000, *(json.dumps({**said, **each}) for each in wrong)):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(UserError, match="is not that of a timm model"):
            open_weights(tmp_path)


def test_a_run_that_is_not_finished_gives_its_latest_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = build_encoder(EncoderConfig(backbone="tiny"), image_size=32)
    state = {
        "step": 1500,
        "card": card_as_text(card_of(encoder, 32, *IMAGENET)),
        "method": {f"encoder.{name}": each for name, each in encoder.state_dict().items()},
    }
    (tmp_path / "checkpoints").mkdir()
    torch.save({**state, "step": 1000, "method": {}}, tmp_path / "checkpoints/step-00001000.pt")
    torch.save(state, tmp_path / "checkpoints/step-00001500.pt")
    found = load(tmp_path)
    assert "is not finished: its encoder is that of the checkpoint after step 1,500" in capsys.readouterr().err
    assert torch.equal(found.backbone.conv1.weight, encoder.backbone.conv1.weight)  # type: ignore[arg-type, union-attr]
    torch.save({"step": 2000, "method": {}}, tmp_path / "checkpoints/step-00002000.pt")
    with pytest.raises(UserError, match="of an earlier manyview: `manyview resume"):
        load(tmp_path)


def test_an_encoder_starts_from_the_features_of_the_weights(tmp_path: Path) -> None:
    made = build_encoder(EncoderConfig(backbone="tiny"), image_size=32)
    save_backbone(tmp_path / "e.safetensors", made, image_size=32, mean=IMAGENET[0], std=IMAGENET[1])
    x = torch.randn(2, 3, 32, 32)
    made.eval()
    ours = start(open_weights(tmp_path / "e.safetensors"), 32, head="linear", dim=7)
    assert torch.equal(ours(x), made.backbone(x))


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_other_channels_answer_alike_to_a_grey_image(channels: int, tmp_path: Path) -> None:
    """The sum over the channels of the first kernel stays: as timm adapts it."""
    theirs = network("resnet18")
    safetensors.torch.save_file(dict(theirs.state_dict()), tmp_path / "model.safetensors")
    ours = start(open_weights(tmp_path / "model.safetensors"), 64, channels)
    grey = torch.randn(2, 1, 64, 64)
    if channels in (1, 2):  # of a longer cycle than three the kernels are not all met equally often
        kernel = theirs.get_parameter("conv1.weight")
        expected = kernel.sum(1) if channels == 1 else 1.5 * kernel[:, :2].sum(1)
        torch.testing.assert_close(ours.get_parameter("conv1.weight").sum(1), expected)
    assert ours(grey.expand(-1, channels, -1, -1)).shape == (2, 512)


def test_a_small_stem_sees_small_images_as_the_standard_one_sees_large_ones(tmp_path: Path) -> None:
    """Where an image has no detail: the kernel keeps its sum, and its shape as far as nine numbers can."""
    theirs = network("resnet18")
    safetensors.torch.save_file(dict(theirs.state_dict()), tmp_path / "model.safetensors")
    ours = start(open_weights(tmp_path / "model.safetensors"), 32, stem="small")
    large, small = theirs.get_parameter("conv1.weight"), ours.get_parameter("conv1.weight")
    assert small.shape[2:] == (3, 3)
    torch.testing.assert_close(small.sum((2, 3)), large.sum((2, 3)))
    # The naive way: each old cell is cut into 3 × 3 pieces, of which 7 × 7 make a new one.
    fine = large.repeat_interleave(3, 2).repeat_interleave(3, 3) / 9
    pooled = nn.functional.avg_pool2d(fine, 7) * 49
    torch.testing.assert_close(small, pooled, atol=1e-5, rtol=1e-4)


def test_positions_are_adapted_to_the_image_size(tmp_path: Path) -> None:
    theirs = network("vit_tiny_patch16_224")
    safetensors.torch.save_file(dict(theirs.state_dict()), tmp_path / "model.safetensors")
    ours = start(open_weights(tmp_path / "model.safetensors"), 96)
    assert ours.get_parameter("pos_embed").shape == (1, 37, 192)
    assert torch.equal(ours.get_parameter("blocks.0.attn.qkv.weight"), theirs.get_parameter("blocks.0.attn.qkv.weight"))
    assert ours(torch.randn(1, 3, 96, 96)).shape == (1, 192)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backbone": "resnet34"}, "--backbone resnet18, not resnet34"),
        ({"norm": "group"}, "--norm batch, not group"),
        ({"split": "lab"}, "one network for whole images, not one for each view of lab"),
    ],
)
def test_what_cannot_be_adapted_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    safetensors.torch.save_file(dict(network("resnet18").state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=words):
        start(open_weights(tmp_path / "model.safetensors"), 64, **changes)


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("conv1.weight", torch.tensor(1.0), "holds the weights of no network"),
        ("conv1.weight", torch.zeros(64, 0, 7, 7), "no usable resnet18: mean of 0 channels instead of 1 to 1,024"),
        ("conv1.weight", torch.zeros(64, 9999, 1, 1).expand(64, 9999, 7, 7), "usable resnet18: mean of 9,999 channels"),
        ("conv1.weight", torch.zeros(64, 3, 7, 7, device="meta"), "holds conv1.weight as without values: save"),
        ("conv1.weight", torch.zeros(64, 3, 7, 7, dtype=torch.complex64), "as complex64 strided: save its weights as"),
        ("pos_embed", torch.tensor(1.0), "holds the weights of no network"),
        ("pos_embed", torch.zeros(192), "holds the weights of no network"),
        ("pos_embed", torch.zeros(1, 1, 192).expand(1, 10**9, 192), "images of 505,952 px instead of 1 to 4,096"),
    ],
)
def test_odd_tensors_are_one_line(name: str, tensor: Tensor, words: str, tmp_path: Path) -> None:
    whole = network("resnet18" if name == "conv1.weight" else "vit_tiny_patch16_224").state_dict()
    torch.save({**whole, name: tensor}, tmp_path / "weights.pth")
    with pytest.raises(UserError, match=words) as caught:
        open_weights(tmp_path / "weights.pth")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("timm", "does not say which model"),
        ("timm:nothing", "timm has no model 'nothing'"),
        ("timm:tiny", "timm has no model 'tiny'"),
        ("timm:resnet18.none", "timm has no weights 'none' of resnet18: choose one of .*a1_in1k"),
        ("timm:resnet14t.c3_in1k", "weights of resnet14t.c3_in1k cannot be fetched"),
    ],
)
def test_timm_without_a_network_is_one_line(spec: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=words) as caught:
        open_weights(spec)
    assert "\n" not in str(caught.value)


def test_a_pickle_of_more_than_tensors_is_not_opened(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "args": Path("x")}, tmp_path / "weights.pth")
    with pytest.raises(UserError, match="holds more than weights"):
        open_weights(tmp_path / "weights.pth")


def test_damaged_files_are_a_users_error(tmp_path: Path) -> None:
    rng = random.Random(0)
    encoder = build_encoder(EncoderConfig(backbone="tiny"), image_size=32)
    save_backbone(tmp_path / "e.safetensors", encoder, image_size=32, mean=IMAGENET[0], std=IMAGENET[1])
    torch.save({"a.weight": torch.zeros(2, 2), "epoch": 1}, tmp_path / "e.pth")
    messages = []
    for name, head in (("e.safetensors", 9000), ("e.pth", 1500)):
        whole = (tmp_path / name).read_bytes()
        for _ in range(40):
            content = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                content[rng.randrange(min(head, len(content)))] = rng.randrange(256)
            path = tmp_path / f"broken{Path(name).suffix}"
            path.write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
            try:
                open_weights(path)
            except UserError as error:
                messages.append(str(error))
    assert len(messages) > 40
    assert not any("\n" in message for message in messages)
