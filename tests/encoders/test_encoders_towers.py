"""Encoders with a network for each view of a sample."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from manyview.encoders import (
    EncoderConfig,
    FrozenEncoder,
    Towers,
    build_encoder,
    load,
    random_like,
    save_backbone,
)
from manyview.errors import UserError
from manyview.views.colourspaces import split
from manyview.views.named import split_views

torch.set_num_threads(1)
CONFIG = EncoderConfig(backbone="tiny", head="linear", dim=8, split="lab")
PLAIN = {"image_size": 16, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def backbone_of(seed: int = 0) -> tuple[Towers, torch.nn.Module]:
    torch.manual_seed(seed)
    encoder = build_encoder(CONFIG, image_size=16).eval()
    assert isinstance(encoder.backbone, Towers)
    encoder.backbone.mean.copy_(torch.tensor([50.0, 1.0, -2.0]).view(3, 1, 1))
    encoder.backbone.std.copy_(torch.tensor([20.0, 5.0, 4.0]).view(3, 1, 1))
    return encoder.backbone, encoder


def test_each_view_has_its_network_and_features_stand_side_by_side() -> None:
    backbone, _ = backbone_of()
    images = torch.rand(4, 3, 16, 16)
    views = split(images, "lab")
    lightness, colours = (
        (views["L"] - 50) / 20,
        (views["ab"] - torch.tensor([1.0, -2.0]).view(2, 1, 1)) / torch.tensor([5.0, 4.0]).view(2, 1, 1),
    )
    with torch.no_grad():
        expected = torch.cat([backbone.networks["L"](lightness), backbone.networks["ab"](colours)], 1)
        assert torch.allclose(backbone(images), expected, atol=1e-5)
    assert backbone.num_features == expected.shape[1] == 512


def test_embeddings_of_the_views_have_equal_shares_of_a_unit_vector() -> None:
    _, encoder = backbone_of()
    with torch.no_grad():
        embedded = encoder(torch.rand(4, 3, 16, 16))
    assert embedded.shape == (4, 16)
    assert encoder.dim == 16
    for part in embedded.chunk(2, 1):
        assert torch.allclose(part.norm(dim=1), torch.full((4,), 0.5**0.5), atol=1e-6)


def test_a_file_brings_networks_and_statistics_back(tmp_path: Path) -> None:
    backbone, encoder = backbone_of()
    save_backbone(tmp_path / "encoder.safetensors", encoder, **PLAIN)  # type: ignore[arg-type]
    loaded = load(tmp_path / "encoder.safetensors")
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.allclose(loaded(images), backbone(images / 255), atol=1e-6)
    with safe_open(tmp_path / "encoder.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["manyview"])["split"] == "lab"


def test_the_random_encoder_beside_it_sees_the_same_normalised_views(tmp_path: Path) -> None:
    backbone, encoder = backbone_of()
    frozen = FrozenEncoder.of(encoder, **PLAIN)  # type: ignore[arg-type]
    other = random_like(frozen, seed=3).backbone
    assert isinstance(other, Towers)
    assert torch.equal(other.mean, backbone.mean)
    assert torch.equal(other.std, backbone.std)
    first, second = (next(network.parameters()) for network in (backbone.networks["L"], other.networks["L"]))
    assert not torch.equal(first, second)


def test_layers_of_the_views_stand_side_by_side() -> None:
    backbone, encoder = backbone_of()
    frozen = FrozenEncoder.of(encoder, **PLAIN)  # type: ignore[arg-type]
    images = torch.rand(2, 3, 16, 16)
    found = frozen.layers(images, ["layer1", "layer4"])
    assert found["layer1"].shape[:2] == (2, 64)
    frozen.check_layers(["layer1", "layer4"])
    with pytest.raises(UserError, match="--layer conv9 is no layer of this backbone: take some of conv1"):
        frozen.check_layers(["conv9"])
    views = backbone.views(images)
    with torch.no_grad():
        alone = backbone.networks["ab"].get_submodule("layer1")(
            backbone.networks["ab"].get_submodule("act1")(
                backbone.networks["ab"].get_submodule("bn1")(
                    backbone.networks["ab"].get_submodule("conv1")(views["ab"])
                )
            )
        )
    assert torch.allclose(found["layer1"][:, 32:], alone, atol=1e-5)


def test_files_of_other_encoders_do_not_speak_of_a_split(tmp_path: Path) -> None:
    save_backbone(tmp_path / "plain.safetensors", build_encoder(EncoderConfig(backbone="tiny")), **PLAIN)  # type: ignore[arg-type]
    with safe_open(tmp_path / "plain.safetensors", framework="pt") as file:
        assert "split" not in json.loads(file.metadata()["manyview"])


def test_an_unknown_view_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"--views lab,lob: 'lob' is no view. Take a colour space \(lab, "):
        build_encoder(EncoderConfig(backbone="tiny", split="lab,lob"))
    with pytest.raises(UserError, match="--views lab,L names L twice"):
        build_encoder(EncoderConfig(backbone="tiny", split="lab,L"))


def many_views() -> tuple[Towers, FrozenEncoder]:
    torch.manual_seed(0)
    config = EncoderConfig(backbone="tiny", head="linear", dim=8, split="normals,lab,RGB,depth")
    encoder = build_encoder(config, image_size=16).eval()
    assert encoder.in_channels == 7
    assert isinstance(encoder.backbone, Towers)
    encoder.backbone.mean.copy_(torch.rand(10, 1, 1))
    return encoder.backbone, FrozenEncoder.of(encoder, image_size=16, mean=(0.0,) * 7, std=(1.0,) * 7)


def test_further_images_follow_the_colours_in_the_order_of_the_views() -> None:
    towers, frozen = many_views()
    samples = torch.rand(2, 7, 16, 16)
    raw = split_views(samples, towers.named)
    assert list(raw) == ["normals", "L", "ab", "RGB", "depth"]
    assert torch.equal(raw["normals"], samples[:, 3:6])
    assert torch.equal(raw["depth"], samples[:, 6:])
    assert torch.equal(raw["RGB"], samples[:, :3])
    assert torch.equal(raw["ab"], split(samples[:, :3], "lab")["ab"])
    assert frozen.card.planes == ("normals", "depth")
    with torch.no_grad():
        expected = towers.networks["depth"](samples[:, 6:] - towers.mean[-1])
        assert torch.allclose(frozen(samples)[:, -256:], expected, atol=1e-5)


def test_some_views_alone_are_an_encoder_too(tmp_path: Path) -> None:
    towers, frozen = many_views()
    samples = torch.rand(2, 7, 16, 16)
    part = frozen.only(["depth", "L"])
    assert part.card.in_channels == 4
    assert part.card.split == "depth,lab.L"
    found = part(torch.cat((samples[:, :3], samples[:, 6:]), 1))
    features = dict(zip(towers.named, frozen(samples).split(256, 1), strict=True))
    assert torch.allclose(found, torch.cat((features["depth"], features["L"]), 1), atol=1e-6)
    with pytest.raises(UserError, match="--view depht: choose some of the encoder's views normals, L, ab, RGB, depth"):
        frozen.only(["depht"])
    whole = FrozenEncoder.of(build_encoder(EncoderConfig(backbone="tiny")), **PLAIN)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="--view L: this encoder sees whole images"):
        whole.only(["L"])
