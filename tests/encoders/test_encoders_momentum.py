"""The key encoder."""

import copy

import pytest
import torch
from torch import Tensor, nn

from manyview.encoders import Encoder, EncoderConfig, Momentum, build_encoder

torch.set_num_threads(1)


def encoder(**changes: int) -> Encoder:
    torch.manual_seed(0)
    return build_encoder(EncoderConfig(backbone="tiny", dim=16, **changes)).double()  # type: ignore[arg-type]


def step_away(network: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter))
        for buffer in network.buffers():
            buffer.add_(7)


def views(m: int, n: int) -> Tensor:
    """(M, N, 3, h, w), every image with a brightness of its own."""
    torch.manual_seed(5)
    levels = torch.arange(1, m * n + 1, dtype=torch.float64).view(m, n, 1, 1, 1)
    return torch.rand(m, n, 3, 16, 16, dtype=torch.float64) * levels


def test_the_copy_starts_equal_with_its_head_and_has_no_gradient() -> None:
    query = encoder()
    keys = Momentum(query)
    assert keys.momentum == 0.999
    mine, theirs = keys.encoder.state_dict(), query.state_dict()
    assert list(mine) == list(theirs)
    assert any(name.startswith("head.") for name in mine)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert all(mine[name].data_ptr() != theirs[name].data_ptr() for name in mine)
    assert not any(parameter.requires_grad for parameter in keys.parameters())
    assert all(parameter.requires_grad for parameter in query.parameters())
    assert keys.encoder.training
    assert not keys.encode(views(1, 2), seed=0, step=0).requires_grad


def test_update_is_the_moving_average_of_every_parameter_and_of_nothing_else() -> None:
    query = encoder()
    keys = Momentum(query, momentum=0.9)
    expected = {name: parameter.clone() for name, parameter in keys.encoder.named_parameters()}
    buffers = {name: buffer.clone() for name, buffer in keys.encoder.named_buffers()}
    for step in range(3):
        step_away(query, seed=step)
        keys.update(query)
        for name, parameter in query.named_parameters():
            expected[name] = 0.9 * expected[name] + (1 - 0.9) * parameter.detach()
    for name, parameter in keys.encoder.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=0, atol=1e-12, check_dtype=True)
        assert not torch.equal(parameter, query.get_parameter(name))
    assert any(not buffer.is_floating_point() for buffer in buffers.values())
    for name, buffer in keys.encoder.named_buffers():
        assert torch.equal(buffer, buffers[name]), name


def test_the_momentum_is_no_part_of_the_state() -> None:
    query = encoder()
    resumed = Momentum(query, momentum=0.5)
    resumed.load_state_dict(Momentum(query, momentum=0.9).state_dict())
    assert resumed.momentum == 0.5


def test_all_keys_of_a_batch_are_encoded_in_one_pass() -> None:
    keys = Momentum(encoder())
    sizes: list[int] = []
    keys.encoder.backbone.register_forward_hook(lambda module, x, y: sizes.append(len(y)))
    images = views(3, 4)
    encoded = keys.encode(images, seed=0, step=0)
    assert sizes == [12]
    assert encoded.shape == (4, 3, 16)
    keys.encoder.eval()
    for m in range(3):
        with torch.no_grad():
            torch.testing.assert_close(keys.encode(images, seed=0, step=0)[:, m], keys.encoder(images[m]))


def test_several_passes_make_smaller_batches_of_the_same_keys() -> None:
    keys = Momentum(build_encoder(EncoderConfig(backbone="tiny", dim=16, norm="group")).double(), passes=3)
    sizes: list[int] = []
    keys.encoder.backbone.register_forward_hook(lambda module, x, y: sizes.append(len(y)))
    images = views(3, 4)
    in_parts = keys.encode(images, seed=0, step=0)
    assert sizes == [4, 4, 4]
    keys.passes = 1
    torch.testing.assert_close(in_parts, keys.encode(images, seed=0, step=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("splits", [1, 3])
def test_every_key_returns_to_its_sample_and_view(splits: int) -> None:
    keys = Momentum(encoder(bn_splits=splits))
    keys.encoder.eval()  # then a key is a function of its own image, whatever the order
    images = views(3, 4)
    encoded = keys.encode(images, seed=1, step=2)
    with torch.no_grad():
        for n in range(4):
            torch.testing.assert_close(encoded[n], keys.encoder(images[:, n]), rtol=0, atol=1e-12)


def test_with_splits_the_company_of_a_key_depends_on_the_step_and_is_not_its_neighbours() -> None:
    keys, images = Momentum(encoder(bn_splits=3)), views(3, 4)
    unshuffled = copy.deepcopy(keys.encoder)
    with torch.no_grad():
        in_order = unshuffled(images.flatten(0, 1)).view(3, 4, -1).transpose(0, 1)
    first, again, later, other = (
        keys.encode(images, seed=seed, step=step) for seed, step in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert torch.equal(first, again)
    for different in (in_order, later, other):
        assert (first - different).abs().max() > 1e-6


def test_without_splits_the_step_and_the_seed_change_nothing() -> None:
    keys, images = Momentum(encoder()), views(2, 4)
    assert torch.equal(keys.encode(images, seed=0, step=0), keys.encode(images, seed=3, step=9))


def test_shuffled_images_stay_in_channels_last() -> None:
    keys = Momentum(encoder(bn_splits=2))
    layouts: list[bool] = []
    keys.encoder.backbone.register_forward_pre_hook(
        lambda module, x: layouts.append(x[0].is_contiguous(memory_format=torch.channels_last))
    )
    images = views(2, 4).permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    keys.encode(images, seed=0, step=0)
    assert layouts == [True]
