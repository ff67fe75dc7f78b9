"""One encoder for each view."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from manyview.encoders import EncoderConfig, Towers, build_encoder, layer_features

torch.set_num_threads(1)
CHANNELS = {"L": 1, "ab": 2}
CONFIG = EncoderConfig(backbone="tiny", dim=16, norm="group")


def towers() -> Towers:
    torch.manual_seed(0)
    return Towers(CHANNELS, CONFIG)


def batch(n: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {view: torch.rand(n, channels, 16, 16, generator=generator) for view, channels in CHANNELS.items()}


def test_every_view_has_an_encoder_of_its_own() -> None:
    torch.manual_seed(0)
    alone = {view: build_encoder(CONFIG, in_channels=channels) for view, channels in CHANNELS.items()}
    found = towers()(batch())
    assert list(found) == ["L", "ab"]
    for view, images in batch().items():
        encoder = alone[view]
        assert torch.equal(found[view], encoder(images))
        assert torch.equal(found[view], normalize(encoder.head(encoder.backbone(images)), dim=1))
        assert found[view].shape == (3, 16)


def test_weights_lie_apart_under_the_names_of_the_views() -> None:
    state = towers().state_dict()
    assert {tuple(name.split(".")[:2]) for name in state} == {("towers", "L"), ("towers", "ab")}
    assert state["towers.L.backbone.conv1.weight"].shape == (32, 1, 3, 3)
    assert state["towers.ab.backbone.conv1.weight"].shape == (32, 2, 3, 3)
    other = Towers(CHANNELS, CONFIG)
    other.load_state_dict(state)
    assert torch.equal(other.features(batch()), towers().features(batch()))


def test_the_representation_is_that_of_the_views_in_the_order_of_the_towers() -> None:
    made, views = towers(), batch()
    whole, parts = made.features(views), made.parts(views)
    assert whole.shape == (3, made.num_features) == (3, 512)
    assert torch.equal(whole, torch.cat([parts["L"], parts["ab"]], 1))
    assert torch.equal(made.features({"ab": views["ab"], "L": views["L"]}), whole)
    assert torch.equal(parts["ab"], made["ab"].features(views["ab"]))


def test_layers_stand_together_along_their_channels() -> None:
    made, views = towers(), batch()
    found = made.layers(views, iter(["layer1", "global_pool"]))
    single = {view: layer_features(made[view].backbone, views[view], ["layer1"])["layer1"] for view in views}
    assert torch.equal(found["layer1"], torch.cat([single["L"], single["ab"]], 1))
    assert torch.equal(found["global_pool"], made.features(views))


def test_missing_views_leave_the_others() -> None:
    made, views = towers(), batch()
    only = {"ab": views["ab"]}
    assert torch.equal(made(only)["ab"], made(views)["ab"])
    assert list(made(only)) == list(made.parts(only)) == ["ab"]
    for ask in (made.features, lambda views: made.layers(views, ["layer1"])):
        with pytest.raises(ValueError, match=r"the views \['L'\] are missing: take `parts`"):
            ask(only)


@pytest.mark.parametrize("wrong", [{}, {"a": torch.rand(1, 1, 16, 16)}])
def test_other_views_are_refused(wrong: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match=r"are not some of \['L', 'ab'\]"):
        towers()(wrong)


def test_towers_without_a_view_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one view"):
        Towers({}, CONFIG)


def test_each_view_is_encoded_once() -> None:
    made, calls = towers(), list[str]()
    for view in CHANNELS:
        made[view].backbone.register_forward_hook(lambda *_, view=view: calls.append(view))
    made(batch())
    assert calls == ["L", "ab"]


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def gradients(made: Towers, call: nn.Module) -> dict[str, Tensor]:
    found = call(batch())
    (found["L"] * found["ab"].roll(1, 0)).sum().backward()
    return {name: parameter.grad for name, parameter in made.named_parameters() if parameter.grad is not None}


def test_one_call_is_enough_for_the_gradients_of_several_ranks(one_rank: None) -> None:
    plain, wrapped = towers(), towers()
    parallel = DistributedDataParallel(wrapped)  # complains about a parameter that a step does not use
    for _ in range(2):
        plain.zero_grad()
        parallel.zero_grad()
        expected, found = gradients(plain, plain), gradients(wrapped, parallel)
        assert set(found) == set(expected) == {name for name, _ in plain.named_parameters()}
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient)
