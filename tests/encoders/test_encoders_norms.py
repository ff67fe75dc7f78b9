"""Group normalisation and split batch normalisation in the place of batch normalisation."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from manyview.encoders import EncoderConfig, SplitBatchNorm, build_backbone, build_encoder
from manyview.encoders.norms import SyncBatchNorm, group_norm_like, replace_batch_norm
from manyview.errors import UserError

torch.set_num_threads(1)

WITH_FUSED_ACTIVATION = "test_efficientnet"  # timm fuses normalisation and activation there


def uneven(shape: tuple[int, ...]) -> Tensor:
    """Samples whose statistics differ strongly from one to the next."""
    torch.manual_seed(0)
    scale = torch.arange(1, shape[0] + 1, dtype=torch.float64).view(-1, *[1] * (len(shape) - 1))
    return torch.randn(shape, dtype=torch.float64) * scale + scale


def trained(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> nn.BatchNorm1d | nn.BatchNorm2d:
    torch.manual_seed(1)
    for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
        assert tensor is not None
        tensor.uniform_(0.5, 1.5)
    return norm


@pytest.mark.parametrize("backbone", ["tiny", "test_resnet", WITH_FUSED_ACTIVATION, "alexnet-small"])
def test_with_group_norm_a_sample_does_not_see_the_others_of_its_batch(backbone: str) -> None:
    torch.manual_seed(0)
    encoder = build_encoder(EncoderConfig(backbone=backbone, norm="group"), image_size=16).double().eval()
    for module in encoder.modules():  # some networks drop at random when they are trained: only the norm is asked about
        if not isinstance(module, nn.Dropout):
            module.training = True
    images = torch.rand(3, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        together = encoder(images)
        alone = torch.cat([encoder(image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    assert (together[0] - together[1]).abs().max() > 1e-6


def test_batch_norm_is_all_replaced_by_group_norm_and_keeps_scales_and_activations() -> None:
    torch.manual_seed(0)
    before = build_backbone(WITH_FUSED_ACTIVATION)
    torch.manual_seed(0)
    after = build_backbone(WITH_FUSED_ACTIVATION, norm="group")
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in after.modules())
    assert [n for n, _ in before.named_parameters()] == [n for n, _ in after.named_parameters()]
    assert [p.shape for p in before.parameters()] == [p.shape for p in after.parameters()]
    kinds = [[type(m) for m in network.modules() if isinstance(m, nn.SiLU | nn.ReLU)] for network in (before, after)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (256, 32), (24, 24), (48, 24), (37, 1), (96, 32)])
def test_groups_are_the_most_up_to_32_that_divide_the_channels(channels: int, groups: int) -> None:
    norm = group_norm_like(nn.BatchNorm2d(channels))
    assert (norm.num_groups, norm.num_channels) == (groups, channels)


def test_group_norm_starts_as_the_norm_that_it_replaces() -> None:
    norm = nn.BatchNorm2d(4)
    nn.init.constant_(norm.weight, 0.25)
    nn.init.constant_(norm.bias, -1.0)
    network = nn.Sequential(norm)
    replace_batch_norm(network, group_norm_like)
    assert isinstance(network[0], nn.GroupNorm)
    assert (network[0].weight == 0.25).all()
    assert (network[0].bias == -1.0).all()


@pytest.mark.parametrize(("norm", "shape"), [(nn.BatchNorm2d, (12, 5, 3, 4)), (nn.BatchNorm1d, (12, 5))])
@pytest.mark.parametrize("splits", [2, 3, 4])
def test_split_norm_is_a_loop_of_batch_norms_over_the_parts(
    norm: type[nn.BatchNorm1d | nn.BatchNorm2d], shape: tuple[int, ...], splits: int
) -> None:
    whole = trained(norm(5))
    split = SplitBatchNorm(whole, splits).double()
    whole.double()
    x, upstream = uneven(shape), torch.randn(shape, dtype=torch.float64)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()

    ours = split(mine)
    torch.autograd.backward(ours, upstream)
    loops = [copy.deepcopy(whole) for _ in range(splits)]
    expected = torch.cat([loop(part) for loop, part in zip(loops, theirs.chunk(splits), strict=True)])
    torch.autograd.backward(expected, upstream)

    close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    close(ours, expected)
    close(mine.grad, theirs.grad)
    for name in ("weight", "bias"):
        gradient = sum(loop.get_parameter(name).grad for loop in loops)  # type: ignore[misc]
        close(split.get_parameter(name).grad, gradient)
    for name in ("running_mean", "running_var"):
        close(split.get_buffer(name), torch.stack([loop.get_buffer(name) for loop in loops]).mean(0))
    assert int(split.get_buffer("num_batches_tracked")) == 1
    assert (ours - copy.deepcopy(whole)(x)).abs().max() > 0.01, "the parts were not treated apart"


def test_split_norm_is_ordinary_batch_norm_in_eval_mode() -> None:
    whole = trained(nn.BatchNorm2d(5)).eval()
    split = SplitBatchNorm(whole, 2).eval()
    x = uneven((7, 5, 3, 4)).float()  # not divisible, which only matters in training
    assert torch.equal(split(x), whole(x))


@pytest.mark.parametrize("backbone", ["test_resnet", WITH_FUSED_ACTIVATION])
def test_splits_change_neither_the_state_dict_nor_the_evaluated_network(backbone: str) -> None:
    torch.manual_seed(0)
    plain = build_backbone(backbone).eval()
    torch.manual_seed(0)
    split = build_backbone(backbone, bn_splits=2).eval()
    assert any(isinstance(module, SplitBatchNorm) for module in split.modules())
    assert list(plain.state_dict()) == list(split.state_dict())
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(split(images), plain(images), rtol=0, atol=0)


def test_a_split_network_treats_the_parts_of_a_batch_as_separate_batches() -> None:
    torch.manual_seed(0)
    split = build_backbone("tiny", bn_splits=2).double()
    torch.manual_seed(0)
    plain = build_backbone("tiny").double()
    images = uneven((8, 3, 32, 32))
    with torch.no_grad():
        expected = torch.cat([copy.deepcopy(plain)(part) for part in images.chunk(2)])
        torch.testing.assert_close(split(images), expected, rtol=0, atol=1e-12)


def test_a_batch_that_does_not_divide_into_the_splits_is_a_users_error() -> None:
    with pytest.raises(UserError, match=r"a batch of 6 images does not divide into --bn-splits 4 .* --batch-size"):
        build_backbone("tiny", bn_splits=4)(torch.rand(6, 3, 32, 32))


@pytest.mark.parametrize("config", [EncoderConfig("test_vit"), EncoderConfig("tiny", norm="group")])
def test_without_batch_norm_there_is_nothing_to_split(config: EncoderConfig) -> None:
    """A preset may ask for parts before it knows the network."""
    kinds = [
        [type(module) for module in build_encoder(replace(config, bn_splits=splits)).modules()] for splits in (1, 2)
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 5, 3)])
def test_alone_synchronised_norm_is_batch_norm(shape: tuple[int, ...]) -> None:
    norm = trained(nn.BatchNorm1d(4) if len(shape) == 2 else nn.BatchNorm2d(4)).double()
    sync = SyncBatchNorm(copy.deepcopy(norm)).double()
    ours, theirs = uneven(shape).requires_grad_(), uneven(shape).requires_grad_()
    for mode in (True, False):
        norm.train(mode), sync.train(mode)
        torch.testing.assert_close(sync(ours), norm(theirs), rtol=0, atol=1e-10)
        (sync(ours).sin() * uneven(shape)).sum().backward()
        (norm(theirs).sin() * uneven(shape)).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-10)
    for name, value in norm.state_dict().items():
        torch.testing.assert_close(sync.state_dict()[name], value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sync.weight.grad, norm.weight.grad, rtol=1e-9, atol=1e-10)


def test_fixed_norm_is_in_training_what_batch_norm_is_in_evaluation() -> None:
    torch.manual_seed(0)
    plain = build_backbone("resnet18").eval()
    for name, buffer in plain.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5)
    fixed = build_backbone("resnet18", norm="fixed").train()
    fixed.load_state_dict(plain.state_dict())
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(fixed(images), plain(images))
    assert all(torch.equal(each, plain.state_dict()[name]) for name, each in fixed.state_dict().items())
    fixed(images).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in fixed.parameters())


def test_synchronised_norm_keeps_half_precision_and_fused_activations() -> None:
    network = build_backbone(WITH_FUSED_ACTIVATION, norm="sync").eval()
    plain = build_backbone(WITH_FUSED_ACTIVATION).eval()
    plain.load_state_dict(network.state_dict())
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(network(images), plain(images))
    half = SyncBatchNorm(nn.BatchNorm2d(3))(images.bfloat16())
    assert half.dtype == torch.bfloat16
    assert half.float().mean().abs() < 0.05
