"""Layers of backbones, by name."""

import pytest
import torch
from torch import Tensor, nn

from manyview.encoders import Card, FrozenEncoder, build_backbone, layer_features
from manyview.errors import UserError

torch.set_num_threads(1)


def hooks(network: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in network.modules())


def alexnet() -> nn.Module:
    torch.manual_seed(0)
    return build_backbone("alexnet-half-small", image_size=16, in_channels=2).eval()


def test_layers_give_what_they_give_when_called_one_by_one() -> None:
    network, x = alexnet(), torch.rand(3, 2, 16, 16)
    names = ["conv1", "pool1", "conv2", "conv5", "fc6", "fc7"]
    with torch.no_grad():
        found = layer_features(network, x, names)
        assert list(found) == names
        for name, layer in network.named_children():
            x = layer(x.flatten(1) if name == "fc6" else x)
            if name in names:
                assert torch.equal(found[name], x)
    assert found["conv1"].shape == (3, 48, 16, 16)
    assert found["fc7"].shape == (3, 2048)


def test_an_output_that_the_next_layer_overwrites_is_kept() -> None:
    """The ReLU behind bn1 works in place."""
    network = build_backbone("tiny").eval()
    with torch.no_grad():
        found = layer_features(network, torch.rand(2, 3, 32, 32), ["act1", "bn1"])
    assert found["bn1"].min() < 0
    assert torch.equal(found["bn1"].relu(), found["act1"])


def test_a_resnet_has_its_stages_and_what_is_within_them() -> None:
    network = build_backbone("resnet18").eval()
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        found = layer_features(network, x, ["layer1", "layer2.0", "layer4", "global_pool"])
        assert torch.equal(found["global_pool"], network(x))
    assert [tuple(found[name].shape[1:]) for name in found] == [(64, 16, 16), (128, 8, 8), (512, 2, 2), (512,)]


def test_maps_with_their_channels_last_come_with_them_first() -> None:
    network = build_backbone("swin_tiny_patch4_window7_224", image_size=64).eval()
    with torch.no_grad():
        found = layer_features(network, torch.rand(1, 3, 64, 64), ["layers.0", "layers.3"])
    assert found["layers.0"].shape == (1, 96, 16, 16)
    assert found["layers.3"].shape == (1, 768, 2, 2)


def test_gradients_pass() -> None:
    network = alexnet()
    layer_features(network, torch.rand(2, 2, 16, 16), ["conv2"])["conv2"].sum().backward()
    touched = {name.partition(".")[0] for name, p in network.named_parameters() if p.grad is not None}
    assert touched == {"conv1", "conv2"}


def test_outputs_are_reduced_at_once() -> None:
    network, sizes = alexnet(), list[int]()

    def mean(output: Tensor) -> Tensor:
        sizes.append(output.shape[-1])
        return output.mean((2, 3))

    found = layer_features(network, torch.rand(2, 2, 16, 16), ["conv2", "conv1"], keep=mean)
    assert sizes == [16, 7]  # as they pass, whatever the order asked for
    assert {name: tuple(values.shape) for name, values in found.items()} == {"conv2": (2, 96), "conv1": (2, 48)}


def test_hooks_are_removed_also_when_the_pass_fails() -> None:
    network = alexnet()
    layer_features(network, torch.rand(2, 2, 16, 16), ["conv1", "fc7"])
    assert hooks(network) == 0
    with pytest.raises(UserError, match="16 px or more, not 8"):
        layer_features(network, torch.rand(2, 2, 8, 8), ["conv1"])
    assert hooks(network) == 0
    with pytest.raises(UserError):
        layer_features(network, torch.rand(2, 2, 16, 16), ["conv1", "conv9"])
    assert hooks(network) == 0


@pytest.mark.parametrize("unknown", ["conv9", "", "conv1.weight"])
def test_an_unknown_layer_is_answered_with_those_that_there_are(unknown: str) -> None:
    words = (
        rf"^--layer {unknown} is no layer of this backbone: "
        "take some of conv1, pool1, conv2, pool2, conv3, conv4, conv5, pool5, fc6, fc7$"
    )
    with pytest.raises(UserError, match=words):
        layer_features(alexnet(), torch.rand(1, 2, 16, 16), ["conv1", unknown])


def test_a_layer_that_no_image_passes_is_a_users_error() -> None:
    network = build_backbone("tiny").eval()
    network.add_module("spare", nn.Identity())
    with pytest.raises(UserError, match="--layer spare gives no tensor"):
        layer_features(network, torch.rand(1, 3, 16, 16), ["layer1", "spare"])


def test_a_frozen_encoder_normalises_before_its_layers() -> None:
    network = alexnet()
    frozen = FrozenEncoder(network, Card("alexnet-half-small", "standard", "batch", 16, (0.5, 0.4), (0.2, 0.1)))
    images = torch.randint(0, 256, (3, 2, 16, 16), dtype=torch.uint8)
    scaled = (images / 255 - torch.tensor([0.5, 0.4]).view(2, 1, 1)) / torch.tensor([0.2, 0.1]).view(2, 1, 1)
    found = frozen.layers(images, ["conv3", "fc7"])
    with torch.no_grad():
        torch.testing.assert_close(found["conv3"], layer_features(network, scaled, ["conv3"])["conv3"])
    assert torch.equal(found["fc7"], frozen(images))
    assert frozen.bfloat16().layers(images, ["conv3"])["conv3"].dtype == torch.float32
