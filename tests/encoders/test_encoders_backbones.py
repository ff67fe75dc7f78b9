"""Backbones by name: shapes, sizes and cost."""

import time

import pytest
import torch
from torch import nn

from manyview.encoders import build_backbone
from manyview.encoders.backbones import Stem, feature_width
from manyview.errors import UserError

torch.set_num_threads(1)


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def grid_before_pooling(network: nn.Module, size: int) -> tuple[int, ...]:
    """Height and width of what enters the global pooling of a timm ResNet."""
    seen: list[tuple[int, ...]] = []
    network.get_submodule("layer4").register_forward_hook(lambda module, x, y: seen.append(tuple(y.shape[2:])))
    with torch.no_grad():
        network.eval()(torch.zeros(1, 3, size, size))
    return seen[0]


def seconds(call: object, repeats: int) -> float:
    """CPU seconds of the fastest of some repeats: other work on the machine only ever adds."""
    assert callable(call)
    call()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def test_tiny_has_about_a_million_parameters_and_256_features() -> None:
    network = build_backbone("tiny")
    assert 0.8e6 < parameters(network) < 1.3e6
    assert feature_width(network) == 256


@pytest.mark.parametrize("size", [16, 32, 33, 64, 96])
def test_tiny_takes_images_from_16_to_96_px(size: int) -> None:
    assert build_backbone("tiny")(torch.rand(2, 3, size, size)).shape == (2, 256)


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_tiny_takes_at_most_600_microseconds_per_image_and_core(training: bool) -> None:
    network = build_backbone("tiny").train(training)
    images = torch.rand(256, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        took = seconds(lambda: network(images), repeats=20)
    assert took / len(images) < 0.6e-3


def test_tiny_costs_a_small_part_of_resnet18() -> None:
    """A ratio, because the speed of a shared machine says nothing: resnet18 with this stem needs 30 times the work."""
    images = torch.rand(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    tiny, large = build_backbone("tiny").eval(), build_backbone("resnet18", stem="small").eval()
    with torch.no_grad():
        assert seconds(lambda: tiny(images), 3) < 0.3 * seconds(lambda: large(images), 3)


@pytest.mark.parametrize(
    ("name", "size", "width"),
    [
        ("resnet18", 32, 512),
        ("test_vit", 160, 64),
        ("test_vit", 32, 64),  # built for 160 px unless it is told otherwise
        ("test_convnext", 32, 64),
        ("mobilenetv3_small_050", 32, 1024),  # its features lie behind a hidden layer
    ],
)
def test_any_name_of_timm_gives_features(name: str, size: int, width: int) -> None:
    network = build_backbone(name, image_size=size).eval()
    assert feature_width(network) == width
    with torch.no_grad():
        assert network(torch.rand(2, 3, size, size)).shape == (2, width)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize(
    ("name", "stem", "size"),
    [
        ("tiny", "standard", 16),
        ("resnet18", "standard", 32),
        ("resnet26d", "small", 16),  # a deep stem, replaced
        ("resnet50x0.5", "small", 16),
        ("test_vit", "standard", 32),
    ],
)
def test_the_input_channels_are_free(name: str, stem: Stem, size: int, channels: int) -> None:
    network = build_backbone(name, stem=stem, image_size=size, in_channels=channels).eval()
    with torch.no_grad():
        assert network(torch.rand(2, channels, size, size)).shape == (2, feature_width(network))


def convolution_widths(network: nn.Module) -> list[int]:
    return [module.out_channels for module in network.modules() if isinstance(module, nn.Conv2d)]


@pytest.mark.parametrize(("name", "factor", "millions"), [("resnet50x0.5", 0.5, 6), ("resnet50x2", 2, 94)])
def test_a_widened_resnet50_has_the_factor_in_every_layer(name: str, factor: float, millions: float) -> None:
    """Two of half the width make the 12 M parameters that CMC's Table 9 counts."""
    usual, widened = build_backbone("resnet50"), build_backbone(name)
    assert convolution_widths(widened) == [factor * width for width in convolution_widths(usual)]
    assert feature_width(widened) == factor * 2048
    assert parameters(widened) == pytest.approx(1e6 * millions, rel=0.03)
    assert list(widened.state_dict()) == list(usual.state_dict())
    strides = [
        [m.stride for m in network.modules() if isinstance(m, nn.Conv2d | nn.MaxPool2d)] for network in (usual, widened)
    ]
    assert strides[0] == strides[1]


def test_weights_lie_in_channels_last() -> None:
    weight = build_backbone("resnet18").get_parameter("layer1.0.conv1.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["test_resnet", "resnet26d"])  # a plain and a deep stem
def test_small_stem_keeps_the_size_of_the_image_up_to_the_first_stage(name: str) -> None:
    assert grid_before_pooling(build_backbone(name, stem="small"), 32) == (4, 4)
    assert grid_before_pooling(build_backbone(name), 32) == (1, 1)


def test_small_stem_starts_like_the_other_convolutions_of_timm() -> None:
    torch.manual_seed(0)
    weight = build_backbone("resnet18", stem="small").get_parameter("conv1.weight")
    assert weight.shape == (64, 3, 3, 3)
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)


def test_small_stem_of_another_network_is_a_users_error() -> None:
    with pytest.raises(UserError, match=r"--stem small is defined for ResNets, not for --backbone test_vit: take"):
        build_backbone("test_vit", stem="small")


def test_unknown_backbone_names_the_flag_and_close_matches() -> None:
    with pytest.raises(UserError, match=r"--backbone resnet5 is unknown: did you mean .*resnet50"):
        build_backbone("resnet5")


@pytest.mark.parametrize("name", ["hf-hub:someone/model", "hf_hub:someone/model", "local-dir:/etc", "zzzzzzzz", ""])
def test_names_that_would_download_or_read_are_unknown(name: str) -> None:
    with pytest.raises(UserError, match=r"is unknown: take tiny, alexnet-small, .* or a name of timm.list_models"):
        build_backbone(name)


def test_a_size_that_a_network_cannot_be_built_for_is_a_users_error() -> None:
    with pytest.raises(UserError, match="swinv2_base_window12_192 cannot be built for --image-size 64"):
        build_backbone("swinv2_base_window12_192", image_size=64)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "tiny"])
def test_residual_branches_do_not_start_at_zero(name: str) -> None:
    """As in torchvision's ResNets, which the papers train; timm's own default is zero."""
    norms = [m.weight for m in build_backbone(name).modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((weight == 1).all() for weight in norms)
