"""The AlexNets and the encoder of NYU, row by row of CMC's tables."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from manyview.encoders import build_backbone
from manyview.encoders.backbones import feature_width
from manyview.encoders.plain import build_plain
from manyview.errors import UserError

torch.set_num_threads(1)

# Layer: X, C, K, S, P, as printed.
TABLE_10 = {
    "conv1": (64, 48, 3, 1, 1),
    "pool1": (31, 48, 3, 2, 0),
    "conv2": (31, 96, 3, 1, 1),
    "pool2": (15, 96, 3, 2, 0),
    "conv3": (15, 192, 3, 1, 1),
    "conv4": (15, 192, 3, 1, 1),
    "conv5": (15, 96, 3, 1, 1),
    "pool5": (7, 96, 3, 2, 0),
    "fc6": (1, 2048, 7, 1, 0),
    "fc7": (1, 2048, 1, 1, 0),
}
TABLE_11 = {
    "conv1": (55, 48, 11, 4, 2),
    "pool1": (27, 48, 3, 2, 0),
    "conv2": (27, 128, 5, 1, 2),
    "pool2": (13, 128, 3, 2, 0),
    "conv3": (13, 192, 3, 1, 1),
    "conv4": (13, 192, 3, 1, 1),
    "conv5": (13, 128, 3, 1, 1),
    "pool5": (6, 128, 3, 2, 0),
    "fc6": (1, 2048, 6, 1, 0),
    "fc7": (1, 2048, 1, 1, 0),
}
TABLE_12 = {
    "conv1": (64, 64, 8, 2, 3),
    "pool1": (32, 64, 2, 2, 0),
    "conv2": (16, 128, 4, 2, 1),
    "conv3": (8, 256, 4, 2, 1),
    "conv4": (8, 256, 3, 1, 1),
    "conv5": (4, 512, 4, 2, 1),
    "fc6": (1, 512, 4, 1, 0),
    "fc7": (1, 256, 1, 1, 0),
}
Row = tuple[int, int, int, int, int]


def side(value: int | tuple[int, ...] | str) -> int:
    return int(value[0] if isinstance(value, tuple) else value)


def row_of(layer: nn.Module, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Row:
    """X, C, K, S, P of a layer; a fully connected one is a convolution whose kernel is the whole grid."""
    first = layer[0] if isinstance(layer, nn.Sequential) else layer
    if isinstance(first, nn.MaxPool2d):
        return outputs[2], outputs[1], side(first.kernel_size), side(first.stride), side(first.padding)
    if isinstance(first, nn.Conv2d):
        assert first.in_channels == inputs[1]
        return outputs[2], outputs[1], side(first.kernel_size), side(first.stride), side(first.padding)
    assert isinstance(first, nn.Linear)
    return 1, first.out_features, inputs[-1] if len(inputs) == 4 else 1, 1, 0


def rows(network: nn.Module, channels: int, size: int) -> dict[str, Row]:
    """The table of a network, from an image that goes through it; `fc6` is told the grid that it flattens."""
    found: dict[str, Row] = {}
    shape: tuple[int, ...] = (1, channels, size, size)
    for name, layer in network.named_children():

        def note(layer: nn.Module, inputs: tuple[torch.Tensor], outputs: torch.Tensor, name: str = name) -> None:
            nonlocal shape
            found[name] = row_of(layer, shape, tuple(outputs.shape))
            shape = tuple(outputs.shape)

        layer.register_forward_hook(note)
    with torch.no_grad():
        network.eval()(torch.rand(1, channels, size, size))
    return found


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "size", "table"),
    [("alexnet-half-small", 64, TABLE_10), ("alexnet-half", 224, TABLE_11), ("nyu", 128, TABLE_12)],
)
def test_every_layer_is_that_of_the_table(name: str, size: int, table: dict[str, Row], channels: int) -> None:
    network = build_backbone(name, in_channels=channels)
    assert rows(network, channels, size) == table
    assert feature_width(network) == table["fc7"][1]


def test_two_halves_make_alexnet_small() -> None:
    half, whole = (rows(build_backbone(name, image_size=64), 3, 64) for name in ("alexnet-half-small", "alexnet-small"))
    assert whole == {name: (x, 2 * c, *rest) for name, (x, c, *rest) in half.items()}


def test_every_layer_but_the_last_of_nyu_is_normalised_and_rectified() -> None:
    for name in ("alexnet-half-small", "alexnet-half", "nyu"):
        layers = {key: layer for key, layer in build_backbone(name).named_children() if not key.startswith("pool")}
        plain = {key for key, layer in layers.items() if not isinstance(layer, nn.Sequential)}
        assert plain == ({"fc7"} if name == "nyu" else set())
        for layer in (layers[key] for key in layers if key not in plain):
            assert isinstance(layer, nn.Sequential)
            assert isinstance(layer[1], nn.BatchNorm2d | nn.BatchNorm1d)
            assert isinstance(layer[2], nn.ReLU)


@pytest.mark.parametrize(("size", "grid"), [(32, 3), (64, 7)])
def test_alexnet_small_has_the_layers_of_cmc_table_10_twice_over(size: int, grid: int) -> None:
    network = build_backbone("alexnet-small", image_size=size)
    shapes = [tuple(p.shape) for name, p in network.named_parameters() if p.ndim > 1]
    assert shapes == [
        (96, 3, 3, 3),
        (192, 96, 3, 3),
        (384, 192, 3, 3),
        (384, 384, 3, 3),
        (192, 384, 3, 3),
        (4096, 192 * grid * grid),
        (4096, 4096),
    ]
    assert feature_width(network) == 4096
    with torch.no_grad():
        assert network.eval()(torch.rand(2, 3, size, size)).shape == (2, 4096)


def test_alexnet_small_keeps_the_names_of_its_tensors() -> None:
    """Encoders that were written before its poolings had names must load."""
    names = {name.rpartition(".")[0] for name in build_backbone("alexnet-small").state_dict()}
    layers = [*(f"conv{number}" for number in range(1, 6)), "fc6", "fc7"]
    assert names == {f"{layer}.{part}" for layer in layers for part in (0, 1)}


def test_patches_of_an_image_have_their_maps_brought_to_its_grid() -> None:
    network = build_plain("alexnet-half-small", 64, 3).eval()
    images = torch.rand(2, 3, 64, 64)
    small = F.interpolate(images, size=(16, 16), mode="area")
    maps = small
    for name, layer in network.named_children():
        if name == "fc6":
            break
        maps = layer(maps)
    assert maps.shape[-2:] == (1, 1)
    spread = maps.expand(-1, -1, network.grid, network.grid)
    assert torch.allclose(network(small), network.fc7(network.fc6(spread.flatten(1))), atol=1e-6)
    with pytest.raises(UserError, match="alexnet-half-small takes images and patches of 16 px or more, not 15: use a"):
        network(torch.rand(2, 3, 15, 40))


def test_a_size_beyond_those_of_the_table_is_refused() -> None:
    with pytest.raises(UserError, match=r"alexnet-small takes images of 16 to 96 px, not --image-size 224"):
        build_backbone("alexnet-small", image_size=224)
