"""Backbone and head together."""

import pytest
import torch
from torch import nn

from manyview.encoders import EncoderConfig, build_encoder
from manyview.errors import UserError

torch.set_num_threads(1)


def test_embeddings_have_unit_length_and_features_the_width_of_the_backbone() -> None:
    encoder = build_encoder(EncoderConfig(backbone="tiny", dim=32))
    images = torch.rand(4, 3, 32, 32)
    embeddings = encoder(images)
    assert embeddings.shape == (4, encoder.dim) == (4, 32)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(4))
    assert encoder.features(images).shape == (4, encoder.num_features) == (4, 256)


def test_embeddings_are_the_normalised_output_of_head_and_backbone() -> None:
    encoder = build_encoder(EncoderConfig(backbone="tiny")).double().eval()
    images = torch.rand(4, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        raw = encoder.head(encoder.features(images))
        torch.testing.assert_close(encoder(images), raw / raw.norm(dim=1, keepdim=True), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("head", "layers"), [("linear", [(128, 256)]), ("mlp", [(256, 256), (128, 256)])])
def test_heads_are_those_of_moco_v1_and_v2(head: str, layers: list[tuple[int, int]]) -> None:
    encoder = build_encoder(EncoderConfig(backbone="tiny", head=head))  # type: ignore[arg-type]
    linear = [module for module in encoder.head.modules() if isinstance(module, nn.Linear)]
    assert [tuple(module.weight.shape) for module in linear] == layers
    assert sum(isinstance(module, nn.ReLU) for module in encoder.head.modules()) == len(layers) - 1


def test_under_autocast_the_length_is_right_to_float32() -> None:
    encoder = build_encoder(EncoderConfig(backbone="tiny")).eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert encoder.head(encoder.backbone(torch.rand(4, 3, 32, 32))).dtype == torch.bfloat16  # autocast is at work
        embeddings, features = encoder(torch.rand(4, 3, 32, 32)), encoder.features(torch.rand(4, 3, 32, 32))
    assert embeddings.dtype == features.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(4), rtol=0, atol=1e-6)


def test_the_same_seed_gives_the_same_encoder_and_trying_a_size_leaves_no_trace() -> None:
    states = []
    for image_size in (None, 32):
        torch.manual_seed(3)
        encoder = build_encoder(EncoderConfig(backbone="tiny"), image_size=image_size)
        assert encoder.training
        states.append(encoder.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))


def test_an_image_size_that_the_backbone_cannot_take_is_a_users_error() -> None:
    with pytest.raises(UserError, match="--backbone inception_v3 does not take --image-size 32: take another size"):
        build_encoder(EncoderConfig(backbone="inception_v3"), image_size=32)


@pytest.mark.parametrize(
    ("config", "flag"), [(EncoderConfig(dim=0), "--dim 0"), (EncoderConfig(bn_splits=0), "--bn-splits 0")]
)
def test_counts_below_one_are_a_users_error(config: EncoderConfig, flag: str) -> None:
    with pytest.raises(UserError, match=f"{flag} must be at least 1"):
        build_encoder(config)
