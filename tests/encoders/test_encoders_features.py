"""Encoders that are trained on, and feature maps by name."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import counter
from manyview.encoders import (
    EncoderConfig,
    FrozenEncoder,
    MapShape,
    Towers,
    TrainableEncoder,
    build_encoder,
    load,
    save_backbone,
    trainable,
)
from manyview.errors import UserError

torch.set_num_threads(1)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def saved(path: Path, size: int = 32, **config: str) -> Path:
    """A run directory with an encoder whose normalisation has seen something."""
    torch.manual_seed(1)
    encoder = build_encoder(EncoderConfig(**config), image_size=size)  # type: ignore[arg-type]
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
    save_backbone(path / "encoder.safetensors", encoder, image_size=size, mean=MEAN, std=STD)
    return path


def pictures(count: int = 6, size: int = 32) -> Tensor:
    pixels = 255 * counter.uniform(5, torch.arange(count * 3 * size * size))
    return pixels.to(torch.uint8).view(count, 3, size, size)


def statistics(network: nn.Module) -> list[Tensor]:
    return [buffer.clone() for name, buffer in network.named_buffers() if "running" in name]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"backbone": "tiny"}, 32),
        ({"backbone": "resnet18", "stem": "small"}, 32),
        ({"backbone": "alexnet-half-small"}, 64),
        ({"backbone": "vit_tiny_patch16_224"}, 32),
        ({"backbone": "tiny", "split": "lab"}, 32),
    ],
)
def test_features_are_those_of_the_frozen_encoder_and_gradients_reach_every_weight(
    tmp_path: Path, config: dict[str, str], size: int
) -> None:
    run, images = saved(tmp_path, size, **config), pictures(size=size)
    frozen, network = load(run), trainable(run)
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    network.eval()
    torch.testing.assert_close(network(images), frozen(images), rtol=0, atol=0)
    torch.testing.assert_close(network(images / 255), frozen(images), rtol=1e-3, atol=1e-4)
    network.train()
    assert all(module.training for module in network.modules())
    network(images).square().sum().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(each is not None and each.isfinite().all() for each in gradients)
    assert any(each is not None and each.any() for each in gradients)


def test_a_few_steps_fit_what_a_frozen_copy_keeps(tmp_path: Path) -> None:
    run, images, labels = saved(tmp_path, backbone="tiny"), pictures(), torch.arange(6) % 3
    frozen = load(run)
    network, before = trainable(frozen), copy.deepcopy(frozen.state_dict())
    classifier = nn.Linear(network.num_features, 3)
    optimizer = torch.optim.SGD([*network.parameters(), *classifier.parameters()], lr=0.05)
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(classifier(network(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen.state_dict().items())
    kept = network.frozen()
    assert isinstance(kept, FrozenEncoder)
    torch.testing.assert_close(kept(images), network.eval()(images), rtol=0, atol=0)
    assert not torch.allclose(kept(images), frozen(images))
    assert not any(parameter.requires_grad for parameter in kept.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_statistics_move_in_train_mode_only(tmp_path: Path) -> None:
    network = trainable(saved(tmp_path, backbone="tiny"))
    before = statistics(network)
    assert before
    network.eval()(pictures())
    assert equal(statistics(network), before)
    network.train()
    network.map_shapes(["layer2"])  # neither statistics nor modes
    assert equal(statistics(network), before)
    assert all(module.training for module in network.modules())
    network(pictures())
    assert not equal(statistics(network), before)


def test_what_load_gives_stays_frozen(tmp_path: Path) -> None:
    frozen = load(saved(tmp_path, backbone="tiny"))
    before = statistics(frozen)
    assert not any(module.training for module in frozen.train().modules())
    assert not frozen(pictures()).requires_grad
    assert equal(statistics(frozen), before)
    assert not isinstance(frozen, TrainableEncoder)


@pytest.mark.parametrize(
    ("config", "size", "expected"),
    [
        ({"backbone": "tiny"}, 32, {"layer1": (2, 32), "layer2": (4, 64)}),
        (
            {"backbone": "resnet18"},
            64,
            {"layer1": (4, 64), "layer2": (8, 128), "layer3": (16, 256), "layer4": (32, 512)},
        ),
        ({"backbone": "alexnet-half-small"}, 64, {"conv1": (1, 48), "conv5": (64 / 15, 96)}),
        ({"backbone": "vit_tiny_patch16_224"}, 32, {"blocks.3": (16, 192), "norm": (16, 192)}),
    ],
)
def test_maps_come_by_name_with_their_strides_and_channels(
    tmp_path: Path, config: dict[str, str], size: int, expected: dict[str, tuple[float, int]]
) -> None:
    network, images = trainable(saved(tmp_path, size, **config)), pictures(2, size)
    shapes, maps = network.map_shapes(expected), network.maps(images, expected)
    assert list(maps) == list(shapes) == list(expected)
    for name, (stride, channels) in expected.items():
        assert shapes[name] == MapShape(channels, stride)
        side = round(size / shapes[name].stride)
        assert maps[name].shape == (2, shapes[name].channels, side, side)
    sum(each.square().sum() for each in maps.values()).backward()  # type: ignore[union-attr]
    assert next(network.parameters()).grad is not None
    outputs = network.eval().layers(images, expected)
    for name, each in network.maps(images, expected).items():
        if outputs[name].ndim == 4:
            torch.testing.assert_close(each, outputs[name], rtol=0, atol=0)


def test_patches_of_a_transformer_lie_where_they_are_in_the_image(tmp_path: Path) -> None:
    network = trainable(saved(tmp_path, 64, backbone="vit_tiny_patch16_224")).eval()
    tokens, maps = (ask(pictures(2, 64), ["blocks.0"])["blocks.0"] for ask in (network.layers, network.maps))
    assert (tokens.shape, maps.shape) == ((2, 17, 192), (2, 192, 4, 4))  # the first token is that of the class
    for row in range(4):
        for column in range(4):
            assert torch.equal(maps[:, :, row, column], tokens[:, 1 + 4 * row + column])


def test_maps_of_towers_come_by_view(tmp_path: Path) -> None:
    network, images = trainable(saved(tmp_path, backbone="tiny", split="lab")).eval(), pictures(2)
    names = ["ab.layer2", "L.layer1", "ab.layer1"]
    maps, shapes = network.maps(images, names), network.map_shapes(names)
    assert list(maps) == list(shapes) == names
    assert isinstance(network.backbone, Towers)
    both = network.layers(images, ["layer1"])["layer1"]  # views side by side
    torch.testing.assert_close(torch.cat([maps["L.layer1"], maps["ab.layer1"]], 1), both, rtol=0, atol=0)
    maps["L.layer1"].sum().backward()
    views = {name: next(each.parameters()).grad for name, each in network.backbone.networks.items()}
    assert views["L"] is not None
    assert views["ab"] is None
    with pytest.raises(UserError, match=r"layer1 names no view: begin it with one of L, ab"):
        network.maps(images, ["layer1"])


def test_what_gives_no_map_is_said(tmp_path: Path) -> None:
    network = load(saved(tmp_path, 64, backbone="alexnet-half-small"))
    with pytest.raises(UserError, match="--layer fc7 gives no feature map but"):
        network.maps(pictures(2, 64), ["fc7"])
    with pytest.raises(UserError, match="--layer conv9 is no layer of this backbone"):
        network.maps(pictures(2, 64), ["conv9"])
