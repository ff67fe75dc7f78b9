"""What a preset makes of a method and its images."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from manyview.config import AnyConfig, DataConfig, RunConfig
from manyview.data.source import Arrays
from manyview.encoders import build_encoder
from manyview.errors import UserError
from manyview.methods import described, find
from manyview.methods.base import CMCSetup, ViewBatch
from manyview.methods.many_views import ManyViews
from manyview.methods.view_graph import ViewGraph
from manyview.run import presets

RUN, DATA = RunConfig(out=Path("run")), DataConfig(data="somewhere")


class Images(Arrays):
    def __init__(self, side: int, classes: int) -> None:
        self.images = torch.zeros(1000, 3, side, side, dtype=torch.uint8)
        self.arrays = {"image": self.images}
        self.size, self.classes = (side, side), tuple(map(str, range(classes)))


def cifar(name: str, *, side: int = 32, classes: int = 10, views: int = 2) -> AnyConfig:
    return presets.paper_cifar(find(name), RUN, DATA, Images(side, classes), views=views)


@pytest.mark.parametrize(
    ("side", "classes", "augment", "size", "t_neg"),
    [(32, 10, "cifar", 32, (2.0, 0.9)), (32, 100, "cifar100", 32, (3.0, 2.0)), (96, 10, "stl10", 64, (3.0, 2.0))],
)
def test_cacr_on_the_sets_of_c1(side: int, classes: int, augment: str, size: int, t_neg: tuple[float, float]) -> None:
    for views, expected, batch in ((2, t_neg[0], 768), (5, t_neg[1], 128)):
        config = cifar("cacr", side=side, classes=classes, views=views)
        assert (config.method.t_pos, config.method.t_neg) == (1.0, expected)
        assert (config.views.augment, config.views.image_size, config.views.min_crop) == (augment, size, None)
        assert (config.encoder.backbone, config.encoder.head) == ("alexnet-small", "linear")
        optim = config.optim
        assert (optim.batch_size, optim.lr, optim.lr_rule, optim.epochs) == (batch, 0.12, "linear", 200)
        assert [round(share * optim.epochs, 6) for share in optim.milestones] == [155, 170, 185]
        assert (optim.optimizer, optim.sgd_momentum, optim.weight_decay) == ("sgd", 0.9, 1e-4)


def test_the_rivals_on_the_sets_of_c1() -> None:
    assert cifar("cl").method.temperature == 0.19
    assert (cifar("au-cl").method.t, cifar("au-cl").method.temperature) == (2.0, 0.19)
    assert (cifar("hn-cl").method.temperature, cifar("hn-cl").method.beta) == (0.5, 1.0)


@pytest.mark.parametrize("name", described())
def test_methods_without_negatives_in_the_batch_have_no_such_set_up(name: str) -> None:
    if issubclass(find(name), ManyViews):
        assert cifar(name).encoder.backbone == "alexnet-small"
    else:
        with pytest.raises(UserError, match=f"--preset paper-cifar has no values for {name}, whose negatives"):
            cifar(name)


@pytest.mark.parametrize(
    ("setup", "backbone", "size", "optimizer", "lr", "epochs", "decay", "falls"),
    [
        ("paper-alexnet", "alexnet-half", 224, "sgd", 0.03, 200, 0.1, [120, 160]),
        ("paper-stl10", "alexnet-half-small", 64, "sgd", 0.03, 320, 0.1, [200, 240, 280]),
        ("paper-nyu", "nyu", 128, "adam", 1e-3, 3000, 0.2, [2000, 2400, 2800]),
    ],
)
def test_cmcs_appendix_e(
    setup: Any, backbone: str, size: int, optimizer: str, lr: float, epochs: int, decay: float, falls: list[int]
) -> None:
    config = presets.paper_cmc(find("cmc"), RUN, DATA, setup)
    optim = config.optim
    assert (config.encoder.backbone, config.views.image_size, config.views.augment) == (backbone, size, "cmc")
    assert (optim.optimizer, optim.lr, optim.epochs, optim.decay) == (optimizer, lr, epochs, decay)
    assert [round(share * epochs, 6) for share in optim.milestones] == falls
    own = config.method
    expected = {"paper-alexnet": (0.07, "nce", 4096), "paper-stl10": (0.1, "nce", 16_384)}
    assert (own.temperature, own.contrast, own.draw) == expected.get(setup, (0.07, "softmax", 16_384))


def test_cmc_with_parts_of_others_learns_for_240_epochs() -> None:
    lengths = {name: find(name).paper.optim.epochs for name in described() if "cmc" in name or name == "pirl"}
    assert {name for name, epochs in lengths.items() if epochs == 240} == {
        *("pirl", "cmc-pirl", "cmc-moco", "cmc-moco-pirl")
    }


@pytest.mark.parametrize("setup", get_args(CMCSetup))
@pytest.mark.parametrize("name", [name for name in described() if issubclass(find(name), ViewGraph)])
def test_every_method_of_cmc_takes_a_step_in_its_setups(name: str, setup: Any) -> None:
    """Or says why not: patches of a jigsaw are smaller than AlexNet's first layers take."""
    kind = find(name)
    config = presets.paper_cmc(kind, RUN, DATA, setup)
    small = {"draw": 8, "queue_size": 8}
    known = {field.name for field in fields(config.method)} & small.keys()
    own = replace(config.method, **{key: small[key] for key in known})
    encoder = build_encoder(kind.encoder_config(own, config.encoder), image_size=config.views.image_size)
    method = kind(own, encoder, samples=20, seed=0)
    size = config.views.image_size
    views = torch.rand(kind.view_count(own), 2, 3, size, size, generator=torch.Generator().manual_seed(0))
    batch = ViewBatch({"image": views}, torch.tensor([3, 5]), 0, 10)
    if "pirl" in name and setup == "paper-alexnet":
        with pytest.raises(UserError, match="alexnet-half takes images and patches of 64 px or more, not 56"):
            method.step(batch)
        return
    assert method.step(batch)["loss"].isfinite()


def test_cmcs_patches_and_what_is_not_cmcs() -> None:
    for setup, lr in (("paper-stl10", 1e-3), ("paper-alexnet", 1e-2)):
        optim = presets.paper_cmc(find("cmc-patch"), RUN, DATA, setup).optim  # type: ignore[arg-type]
        assert (optim.optimizer, optim.lr, optim.decay, optim.epochs) == ("adam", lr, 0.2, 200)
        assert [round(share * 200, 6) for share in optim.milestones] == [120, 160]
    with pytest.raises(UserError, match="--preset paper-nyu belongs to CMC and has no values for jcl: use one of cmc"):
        presets.paper_cmc(find("jcl"), RUN, DATA, "paper-nyu")


def test_small_batches_hold_as_many_views_whatever_the_method() -> None:
    batches = [presets.small(find("cacr"), RUN, DATA, Images(32, 10), views=views).optim.batch_size for views in (2, 5)]
    assert batches == [256, 102]


@pytest.mark.parametrize(
    ("name", "optimizer", "lr", "batch"),
    [
        ("cmc", "adam", 0.003, 128),
        ("cmc-pirl", "adam", 0.003, 128),
        ("cmc-moco", "sgd", 0.03, 64),
        ("jcl", "sgd", 0.03, 64),
        ("cacr", "sgd", 0.06, 256),
        ("cmc-patch", "adam", 0.001, 256),
        ("predictive", "adam", 0.003, 256),
    ],
)
def test_small_sets_are_learnt_by_what_keeps_the_negatives(name: str, optimizer: str, lr: float, batch: int) -> None:
    optim = presets.small(find(name), RUN, DATA, Images(32, 10), views=2).optim
    assert (optim.optimizer, optim.lr, optim.batch_size, optim.epochs) == (optimizer, lr, batch, 20)


def test_the_softmax_of_moco_v2_is_cooler_on_small_images_and_no_other_hyper_parameter_changes() -> None:
    held = {"momentum", "queue_size", "draw"}  # they follow the size of the set
    for name in described():
        kind = find(name)
        own, paper = vars(presets.small(kind, RUN, DATA, Images(32, 10), views=2).method), vars(kind.Config())
        changed = {key: value for key, value in own.items() if key not in held and value != paper[key]}
        assert changed == ({"temperature": 0.1} if name in ("jcl", "vanilla", "moco-v2") else {}), name


def test_encoded_views_are_shared_out_among_samples() -> None:
    for name, samples in (("cl", 256), ("cacr", 102), ("jcl", 85)):
        kind = find(name)
        config = presets.paper(kind, RUN, DATA)
        asked = presets.at_equal_cost(kind, replace(config, optim=replace(config.optim, encoded_views=512)))
        assert asked.optim.batch_size == samples
        assert presets.at_equal_cost(kind, config) is config
