"""Contrast during training: the same answer every time, and no trace of having asked."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview.data.source import Arrays, Source, Unreadable
from manyview.diagnose.contrast import CONTRAST, contrast
from manyview.diagnose.embeddings import effective_rank
from manyview.diagnose.monitor import BATCH, SAMPLES, T_POS, VIEWS, ContrastMonitor
from manyview.encoders import Encoder, EncoderConfig, build_encoder
from manyview.errors import UserError
from manyview.evaluate.recognise import recognised
from manyview.views import Augment, policy

SIZE = 16


class Noise(Arrays):
    """`count` different images of one size."""

    def __init__(self, count: int) -> None:
        self.name, self.size, self.fingerprint = "noise", (20, 20), f"noise {count}"
        self.images = torch.randint(0, 256, (count, 3, 20, 20), generator=torch.Generator().manual_seed(1)).byte()
        self.arrays = {"image": self.images}


class Photos(Source):
    """Images of differing sizes, of which every fifth cannot be read."""

    def __init__(self, count: int, every: int = 5) -> None:
        self.name, self.size, self.fingerprint = "photos", None, f"photos {count}"
        self.count, self.every = count, every

    def __len__(self) -> int:
        return self.count

    def id(self, index: int) -> str:
        return str(index)

    def read(self, index: int) -> dict[str, Tensor]:
        if index % self.every == 0:
            raise Unreadable("cut off")
        generator = torch.Generator().manual_seed(index)
        return {"image": torch.randint(0, 256, (3, 30 + index % 7, 25 + index % 5), generator=generator).byte()}


def augment(**changes: Any) -> Augment:
    return Augment(policy("moco-v2", min_crop=0.6), **{"views": 2, "size": SIZE, "seed": 3, **changes})


def monitor(source: Source, *, t_neg: float = 2.0, samples: int = SAMPLES, **changes: Any) -> ContrastMonitor:
    return ContrastMonitor(source, augment(**changes), name=source.name, t_neg=t_neg, samples=samples)


def encoder(**options: Any) -> Encoder:
    torch.manual_seed(0)
    return build_encoder(EncoderConfig(**{"backbone": "tiny", "dim": 8, **options}))


@pytest.fixture(scope="module")
def small() -> ContrastMonitor:
    return monitor(Noise(24))


def test_the_numbers_are_those_of_views_embedded_in_eval_mode() -> None:
    source, network = Noise(24), encoder().double().train()
    found = monitor(source, t_neg=1.5)(network)
    order = monitor(source).index
    assert sorted(order.tolist()) == list(range(24))
    own = augment(views=VIEWS)
    views = own.views_of([source.read(i) for i in order.tolist()], order.tolist(), -1)["image"]
    with torch.no_grad():
        features = network.eval().features(views.double().flatten(0, 1))
        embedded = network.embeddings(features).unflatten(0, (VIEWS, 24))
        unit = F.normalize(features, dim=1).unflatten(0, (VIEWS, 24))
    torch.testing.assert_close(embedded.norm(dim=-1), torch.ones(VIEWS, 24, dtype=torch.float64))
    expected = contrast(embedded, t_pos=T_POS, t_neg=1.5)
    expected |= {"recognised": float(recognised(unit).mean()), "feature_rank": effective_rank(unit[0])}
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_views_are_not_those_of_any_epoch_of_the_training() -> None:
    source = Noise(4)
    own, kept = augment(views=VIEWS), monitor(source)
    trained_on = torch.stack([own.crop(source.read(i), i, 0)["image"] for i in kept.index.tolist()])
    assert not torch.equal(kept.crops["image"], trained_on)


def test_how_many_views_a_method_takes_makes_no_difference(small: ContrastMonitor) -> None:
    assert monitor(Noise(24), views=9)(encoder()) == small(encoder())


def test_another_seed_or_t_neg_gives_other_numbers(small: ContrastMonitor) -> None:
    here, other = small(encoder()), monitor(Noise(24), seed=4)(encoder())
    assert here["entropy"] != other["entropy"]
    sharper = monitor(Noise(24), t_neg=20.0)(encoder())
    assert sharper["nearest_weight"] > here["nearest_weight"]
    assert sharper["effective_positives"] == here["effective_positives"]


@pytest.mark.parametrize("norm", ["batch", "sync", "group"])
def test_the_encoder_is_left_as_it_was_found(small: ContrastMonitor, norm: str) -> None:
    network = encoder(norm=norm)
    network.train()
    network.head.eval()  # a part that is meant to differ from the whole
    network.forward(torch.randn(4, 3, SIZE, SIZE)).sum().backward()
    modes = [module.training for module in network.modules()]
    state = {name: value.clone() for name, value in network.state_dict().items()}
    gradients = [None if p.grad is None else p.grad.clone() for p in network.parameters()]
    generator = torch.random.get_rng_state()
    assert small(network) == small(network)
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    for parameter, before in zip(network.parameters(), gradients, strict=True):
        assert parameter.requires_grad
        assert before is not None
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, before)
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert torch.is_grad_enabled()


def test_modes_come_back_after_an_error_too(small: ContrastMonitor, monkeypatch: pytest.MonkeyPatch) -> None:
    network = encoder()

    def fail(x: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(network.backbone, "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        small(network)
    assert all(module.training for module in network.modules())


def test_no_rank_waits_for_another(small: ContrastMonitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of several ranks looks: whatever it asked of the others would never be answered."""
    import torch.distributed

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a collective")

    network = encoder(norm="sync")
    monkeypatch.setattr("manyview.distributed.world_size", lambda: 2)
    for name in ("all_reduce", "all_gather", "all_to_all_single", "barrier", "broadcast"):
        monkeypatch.setattr(torch.distributed, name, refuse)
    assert small(network)["entropy"] > 0


def test_a_compiled_encoder_is_not_compiled_again(small: ContrastMonitor) -> None:
    network, plain = encoder(), encoder()

    def backend(*args: object) -> Callable[..., Any]:
        raise AssertionError("compiled")

    network.compile(backend=backend)
    assert small(network) == small(plain)


def test_dropout_is_off(small: ContrastMonitor) -> None:
    network = encoder()
    network.head = nn.Sequential(nn.Dropout(0.9), network.head)
    assert small(network.train()) == small(network)


def test_large_sets_are_measured_in_whole_batches() -> None:
    """The maximum of the entropy would change with the size of a batch."""
    for available, used in ((SAMPLES + 9, SAMPLES), (SAMPLES - 9, BATCH), (BATCH - 9, BATCH - 9)):
        kept = monitor(Noise(available), size=4)
        assert len(kept) == len(kept.crops["image"]) == used
        assert len(set(kept.index.tolist())) == used
    assert len(monitor(Noise(3 * BATCH + 9), size=4, samples=3 * BATCH + 9)) == 3 * BATCH > SAMPLES


def test_batches_are_averaged() -> None:
    kept, network = monitor(Noise(SAMPLES), size=8), encoder()
    found = kept(network)
    network.eval()
    views = kept.augment.apply(kept.crops, kept.augment.plan(kept.index, -1), cut=True)["image"]
    with torch.no_grad():
        embedded = network(views.flatten(0, 1)).unflatten(0, (VIEWS, SAMPLES))
    halves = [contrast(half, t_pos=T_POS, t_neg=2.0) for half in embedded.split(BATCH, 1)]
    assert len(halves) == 2
    for name in CONTRAST:
        assert found[name] == pytest.approx((halves[0][name] + halves[1][name]) / 2, rel=1e-4)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_differing_sizes_are_cut_and_unreadable_ones_passed_over(workers: int) -> None:
    kept = ContrastMonitor(Photos(30), augment(), name="photos", t_neg=2.0, workers=workers)
    assert sorted(kept.index.tolist()) == [i for i in range(30) if i % 5]
    assert kept.crops["image"].shape == (24, VIEWS, 3, SIZE, SIZE)
    first = int(kept.index[0])
    assert torch.equal(kept.crops["image"][0], augment(views=VIEWS).crop(Photos(30).read(first), first, -1)["image"])
    assert 0 < kept(encoder())["entropy"] <= kept(encoder())["max_entropy"]


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_two_readable_images_are_refused(count: int) -> None:
    with pytest.raises(UserError, match=r"needs two images, and \d can be read: .*--contrast-data.*--contrast-every 0"):
        monitor(Photos(count, every=2))


def test_how_it_is_measured_is_described(small: ContrastMonitor) -> None:
    assert small.describe() == {
        "data": "noise", "samples": 24, "views": 5, "t_pos": 1.0, "t_neg": 2.0, "fingerprint": "noise 24",
    }  # fmt: skip


def test_collapsed_embeddings_are_told_from_spread_ones_by_uniformity(small: ContrastMonitor) -> None:
    class Constant(Encoder):
        def embeddings(self, features: Tensor) -> Tensor:
            return F.normalize(torch.ones(len(features), 8), dim=1)

    found = small(Constant(encoder().backbone, EncoderConfig(dim=8)))
    assert found["entropy"] == pytest.approx(found["max_entropy"], abs=1e-6)
    assert found["uniformity"] == pytest.approx(0, abs=1e-6)
