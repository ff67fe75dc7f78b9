"""The set-up that `auto` chooses for any number and size of images, on any machine."""

from pathlib import Path

import pytest
import torch

from manyview.config import AnyConfig, DataConfig, RunConfig
from manyview.data.source import Arrays
from manyview.errors import UserError
from manyview.methods import described, find
from manyview.run import presets
from manyview.run.auto import Machine, activations, automatic, power_of_two
from manyview.run.build import build, check_division
from manyview.run.choices import AS_ASKED
from manyview.run.duration import in_words, seconds
from manyview.run.flags import parse_run
from manyview.run.pace import contrast_every

LAPTOP, WORKSTATION = Machine(cores=8), Machine(cores=32, gpu=24e9, bf16=True)


class Images(Arrays):
    def __init__(self, samples: int, side: int) -> None:
        self.arrays = {"image": torch.zeros((), dtype=torch.uint8).expand(samples, 3, side, side)}
        self.name, self.size, self.fingerprint = "images", (side, side), "none"


def chosen(
    name: str, samples: int, side: int, machine: Machine = LAPTOP, *flags: str
) -> tuple[AnyConfig, dict[str, str]]:
    method = find(name)
    words = ["--data", "images", "--out", "run", *flags]
    blank = RunConfig(out=Path("run")), DataConfig(data="images")
    if not flags:
        config, reasons = automatic(method, presets.paper(method, *blank), set(), Images(samples, side), machine)
        return config, dict(reasons)
    parsed = parse_run(method, words, opening=lambda *_: Images(samples, side))
    return parsed.config, dict(parsed.reasons)


@pytest.mark.parametrize("samples", [2, 3, 50, 81, 600, 5000])
@pytest.mark.parametrize("name", described())
def test_any_number_of_images_can_be_trained_on(name: str, samples: int) -> None:
    """On a small side, as the networks are built. The methods refuse a queue or a draw that the samples cannot fill."""
    config, reasons = chosen(name, samples, 48)
    own = vars(config.method)
    assert 1 <= own.get("queue_size", 1) <= max(1, samples // 2)
    assert 1 <= own.get("draw", 1) < samples
    assert 2 <= config.optim.batch_size <= samples
    assert set(reasons) >= {"backbone", "image_size", "batch_size", "epochs", "precision", "workers", "contrast_every"}
    check_division(config)


@pytest.mark.parametrize("name", ["jcl", "moco-v2", "simclr", "cacr", "cacr-moco", "pvc"])
def test_two_images_build(name: str) -> None:
    config, _ = chosen(name, 2, 32)
    assert build(find(name), config, Images(2, 32), looks=False).steps == 400


@pytest.mark.parametrize("name", described())
def test_what_the_demo_and_the_recipes_train_is_what_it_was(name: str) -> None:
    """The numbers of many small images are those of --preset small, by which results were measured."""
    run, data = RunConfig(out=Path("run")), DataConfig(data="images")
    views = find(name).view_count(find(name).Config())
    for samples in (5000, 10_000, 50_000):
        small = presets.small(find(name), run, data, Images(samples, 32), views=views)
        config, _ = chosen(name, samples, 32)
        assert (config.method, config.views, config.encoder) == (small.method, small.views, small.encoder)
        assert config.optim == small.optim


def test_photographs_on_a_laptop_get_what_it_can_train() -> None:
    config, reasons = chosen("jcl", 600, 427)
    assert (config.encoder.backbone, config.views.image_size, config.views.min_crop) == ("tiny", 96, None)
    assert (config.optim.batch_size, config.method.queue_size, config.method.mask_own) == (64, 256, True)
    assert "no GPU" in reasons["backbone"]
    for method, views in (("moco-v2", 2), ("jcl", 6)):  # at about equal cost
        config, _ = chosen(method, 300, 427)
        assert config.optim.epochs * 300 * views == pytest.approx(64_000, rel=0.02)


def test_photographs_on_a_gpu_get_the_papers_size() -> None:
    config, reasons = chosen("moco-v2", 200_000, 427, WORKSTATION)
    assert (config.encoder.backbone, config.views.image_size, config.optim.precision) == ("resnet50", 224, "bf16")
    assert config.encoder.bn_splits == config.optim.batch_size // 32  # as on the paper's devices
    assert config.method.queue_size == 25_000
    assert config.method.momentum == 0.999
    assert "24 GB" in reasons["backbone"]
    narrow, reasons = chosen("simclr", 200_000, 427, Machine(cores=8, gpu=8e9, bf16=False))
    assert (narrow.encoder.backbone, narrow.optim.precision) == ("resnet18", "float32")
    assert narrow.optim.batch_size < 256
    assert "8 GB" in reasons["batch_size"]
    assert narrow.optim.lr < find("simclr").paper.optim.lr


def test_what_the_user_asks_for_stays_and_the_rest_follows() -> None:
    words = ["--batch-size", "15", "--queue-size", "9", "--no-mask-own", "--epochs", "3"]
    config, reasons = chosen("jcl", 81, 48, LAPTOP, *words)
    assert (config.optim.batch_size, config.method.queue_size, config.method.mask_own) == (15, 9, False)
    assert config.encoder.bn_splits == 1  # 15 samples cannot be halved
    assert config.optim.epochs == 3
    assert {name for name, reason in reasons.items() if reason == AS_ASKED} == {
        word.removeprefix("--").removeprefix("no-").replace("-", "_") for word in words if word.startswith("--")
    }
    for flags in (["--encoded-views", "60"], ["--accumulate", "3"]):
        config, _ = chosen("jcl", 81, 48, LAPTOP, *flags)
        check_division(config)


def test_a_batch_is_shared_by_all_processes() -> None:
    for world in (2, 3, 8):
        config, _ = chosen("jcl", 600, 48, Machine(cores=8, world=world))
        assert config.optim.batch_size % (world * config.encoder.bn_splits) == 0


def test_activations_are_those_that_hooks_count_on_real_tensors() -> None:
    """A convolution of 8 channels and its like: tiny's sum is counted by hand from the shapes of a real pass."""
    from manyview.encoders import build_encoder

    config, _ = chosen("simclr", 600, 48)
    encoder = build_encoder(config.encoder, image_size=48)
    total = 0

    def count(module: torch.nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal total
        total += output.numel() * output.element_size()

    for module in encoder.modules():
        if not list(module.children()):
            module.register_forward_hook(count)
    encoder.eval()(torch.zeros(1, 3, 48, 48))
    assert activations(config, find("simclr")) == total


def test_looks_cost_little() -> None:
    assert contrast_every(1000, 10, 1, 10_000) == 100  # one, in the last step
    assert contrast_every(1_000_000, 1000, 64 * 6, 10_000) == 1
    assert [power_of_two(most) for most in (1, 2, 3, 63, 64)] == [1, 2, 2, 32, 64]


def test_durations() -> None:
    assert [seconds(text) for text in ("30m", "2h", "1h30m", "90s", "0.5h")] == [1800, 7200, 5400, 90, 1800]
    for text in ("", "30", "m", "1d", "0s", "h1", "1..5h"):
        with pytest.raises(UserError, match="write it like 30m"):
            seconds(text)
    assert [in_words(each) for each in (8.2, 300, 7000, 200_000)] == ["8 s", "5 min", "1.9 h", "2.3 days"]
