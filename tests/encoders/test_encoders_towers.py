"""Encoders with a network for each view of a sample."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from manyview.encoders import (
    EncoderConfig,
    FrozenEncoder,
    Towers,
    build_encoder,
    joined,
    load,
    random_like,
    save_backbone,
)
from manyview.errors import UserError
from manyview.fields import FIELDS
from manyview.views.colourspaces import split
from manyview.views.named import split_views

torch.set_num_threads(1)
CONFIG = EncoderConfig(backbone="tiny", head="linear", dim=8, split="lab")
PLAIN = {"image_size": 16, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def backbone_of(seed: int = 0) -> tuple[Towers, torch.nn.Module]:
    torch.manual_seed(seed)
    encoder = build_encoder(CONFIG, image_size=16).eval()
    assert isinstance(encoder.backbone, Towers)
    statistics(encoder.backbone, "L", [50.0], [20.0])
    statistics(encoder.backbone, "ab", [1.0, -2.0], [5.0, 4.0])
    return encoder.backbone, encoder


def statistics(towers: Towers, view: str, mean: list[float], std: list[float]) -> None:
    normalise = towers.normalise.get_submodule(view)
    for kind, numbers in (("mean", mean), ("std", std)):
        normalise.get_buffer(kind).copy_(torch.tensor(numbers).view(-1, 1, 1))


def test_each_view_has_its_network_and_its_features() -> None:
    backbone, _ = backbone_of()
    images = torch.rand(4, 3, 16, 16)
    views = split(images, "lab")
    lightness, colours = (
        (views["L"] - 50) / 20,
        (views["ab"] - torch.tensor([1.0, -2.0]).view(2, 1, 1)) / torch.tensor([5.0, 4.0]).view(2, 1, 1),
    )
    with torch.no_grad():
        expected = {"L": backbone.networks["L"](lightness), "ab": backbone.networks["ab"](colours)}
        found = backbone({"image": images})
    assert list(found) == ["L", "ab"]
    assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in expected)
    assert backbone.num_features == 512


def test_each_view_has_an_embedding_of_unit_length() -> None:
    _, encoder = backbone_of()
    with torch.no_grad():
        embedded = encoder({"image": torch.rand(4, 3, 16, 16)})
    assert {name: each.shape for name, each in embedded.items()} == {"L": (4, 8), "ab": (4, 8)}
    for each in (*embedded.values(), joined(embedded)):
        assert torch.allclose(each.norm(dim=1), torch.ones(4), atol=1e-6)
    assert joined(embedded).shape == (4, 16)


def test_unknown_pixels_say_nothing_to_a_tower() -> None:
    encoder = build_encoder(EncoderConfig(backbone="tiny", dim=8, split="depth"))
    statistics(encoder.towers, "depth", [3.0], [2.0])
    depth = torch.full((1, 1, 16, 16), 5000, dtype=torch.uint16)
    depth[..., :4] = 0
    view = encoder.towers.views({"depth": FIELDS["depth"].values(depth)})["depth"]
    assert torch.equal(view[..., 4:], torch.ones(1, 1, 16, 12))
    assert not view[..., :4].any(), "the mean depth, and not 0 m"


def test_a_file_brings_networks_and_statistics_back(tmp_path: Path) -> None:
    backbone, encoder = backbone_of()
    save_backbone(tmp_path / "encoder.safetensors", encoder, **PLAIN)  # type: ignore[arg-type]
    loaded = load(tmp_path / "encoder.safetensors")
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    with torch.no_grad():
        expected = torch.cat(list(backbone({"image": images / 255}).values()), 1)
        assert torch.allclose(loaded(images), expected, atol=1e-6)
        assert torch.equal(loaded(images), loaded({"image": images}))
    with safe_open(tmp_path / "encoder.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["manyview"])["split"] == "lab"


def test_the_random_encoder_beside_it_sees_the_same_normalised_views(tmp_path: Path) -> None:
    backbone, encoder = backbone_of()
    frozen = FrozenEncoder.of(encoder, **PLAIN)  # type: ignore[arg-type]
    other = random_like(frozen, seed=3).backbone
    assert isinstance(other, Towers)
    found, expected = other.normalise.state_dict(), backbone.normalise.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
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
    views = backbone.views({"image": images})
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
    assert config.fields == ("image", "depth", "normals")
    encoder = build_encoder(config, image_size=16).eval()
    for name, view in encoder.towers.named.items():
        statistics(encoder.towers, name, torch.rand(len(view.channels)).tolist(), [1.0] * len(view.channels))
    return encoder.towers, FrozenEncoder.of(encoder, **PLAIN)  # type: ignore[arg-type]


def samples() -> dict[str, Tensor]:
    return {
        "image": torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8),
        "depth": torch.randint(1, 9000, (2, 1, 16, 16)).to(torch.uint16),
        "normals": torch.randint(1, 256, (2, 3, 16, 16), dtype=torch.uint8),
    }


def test_views_are_taken_from_fields_by_name() -> None:
    towers, frozen = many_views()
    fields = samples()
    values = {name: FIELDS[name].values(field) for name, field in fields.items()}
    raw = split_views(values, towers.named)
    assert list(raw) == ["normals", "L", "ab", "RGB", "depth"]
    assert torch.equal(raw["normals"], values["normals"])
    assert torch.equal(raw["depth"], values["depth"])
    assert torch.equal(raw["RGB"], values["image"])
    assert torch.equal(raw["ab"], split(values["image"], "lab")["ab"])
    assert frozen.card.fields == ("image", "depth", "normals")
    with torch.no_grad():
        mean = towers.normalise.get_submodule("depth").get_buffer("mean")
        expected = towers.networks["depth"](values["depth"] - mean)
        assert torch.allclose(frozen(fields)[:, -256:], expected, atol=1e-5)
        assert torch.equal(frozen(fields), frozen(values)), "stored or as values"


def test_a_field_that_is_not_given_is_asked_for() -> None:
    _, frozen = many_views()
    fields = samples()
    with pytest.raises(ValueError, match="this encoder needs image, depth, normals: give a mapping of fields by name"):
        frozen(fields["image"])
    with pytest.raises(ValueError, match="this encoder needs image, depth, normals: depth is not given"):
        frozen({name: field for name, field in fields.items() if name != "depth"})
    with pytest.raises(TypeError, match=r"depths must be torch.uint16 or float, not torch.uint8"):
        frozen(fields | {"depth": fields["depth"].to(torch.uint8)})


def test_some_views_alone_are_an_encoder_too(tmp_path: Path) -> None:
    towers, frozen = many_views()
    fields = samples()
    part = frozen.only(["depth", "L"])
    assert part.card.fields == ("image", "depth")
    assert part.card.split == "depth,lab.L"
    features = dict(zip(towers.named, frozen(fields).split(256, 1), strict=True))
    assert torch.allclose(part(fields), torch.cat((features["depth"], features["L"]), 1), atol=1e-6)
    with pytest.raises(UserError, match="--view depht: choose some of the encoder's views normals, L, ab, RGB, depth"):
        frozen.only(["depht"])
    whole = FrozenEncoder.of(build_encoder(EncoderConfig(backbone="tiny")), **PLAIN)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="--view L: this encoder sees whole images"):
        whole.only(["L"])


def test_a_file_of_version_1_loads_with_its_statistics_in_todays_units(tmp_path: Path) -> None:
    """It had bytes alone: depth as a share of 8 m, normals in [0, 1], three greys for segmentation."""
    split, path = "lab,depth,normals,segmentation", tmp_path / "old.safetensors"
    encoder = build_encoder(EncoderConfig(backbone="tiny", head="linear", dim=8, split=split), image_size=16).eval()
    tensors = {f"networks.{name}": each for name, each in encoder.towers.networks.state_dict().items()}
    mean = torch.tensor([50.0, 1.0, -2.0, 0.5, 0.5, 0.6, 0.8, 0.6]).view(-1, 1, 1)
    std = torch.tensor([20.0, 5.0, 4.0, 0.2, 0.1, 0.1, 0.1, 0.3]).view(-1, 1, 1)
    tensors = {name: each.contiguous() for name, each in tensors.items()}
    card = {
        "version": 1, "backbone": "tiny", "stem": "standard", "norm": "batch", "image_size": 16, "mean": [0.0] * 8,
        "std": [1.0] * 8, "split": split,
    }  # fmt: skip
    save_file(tensors | {"mean": mean, "std": std}, path, {"manyview": json.dumps(card)})
    towers = load(path).backbone
    assert isinstance(towers, Towers)
    old = {
        "image": torch.rand(2, 3, 16, 16), "depth": torch.rand(2, 1, 16, 16), "normals": torch.rand(2, 3, 16, 16),
        "segmentation": torch.tensor([0.0, 0.5, 1.0, 0.5]).repeat(2, 1, 16, 4),
    }  # fmt: skip
    now = old | {
        "depth": 8 * old["depth"], "normals": 2 * old["normals"] - 1, "segmentation": 1 + 2 * old["segmentation"]
    }  # fmt: skip
    before = dict(
        zip(towers.named, zip(mean.split([1, 2, 1, 3, 1]), std.split([1, 2, 1, 3, 1]), strict=True), strict=True)
    )
    views, raw = towers.views(now), split_views(old, towers.named)
    for name, (its_mean, its_std) in before.items():
        torch.testing.assert_close(views[name], (raw[name] - its_mean) / its_std, atol=1e-4, rtol=1e-4)
