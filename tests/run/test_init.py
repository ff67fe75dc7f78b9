"""Runs that start from given weights."""

import json
import shutil
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from running import Command, lines, mistake

from manyview.cli import main
from manyview.encoders import Weights, load, open_weights
from manyview.errors import UserError
from manyview.methods import find
from manyview.run.flags import parse_run
from manyview.run.start import Watch, fallen, start_of
from manyview.train import build_optimizer

FLAGS = ["--data", "scenes:64", "--batch-size", "16", "--queue-size", "32", "--image-size", "16", "--workers", "0"]


def pretrain(out: Path, *flags: str, method: str = "moco-v2") -> int:
    return main(["pretrain", method, "--out", str(out), *FLAGS, *flags])


def facts(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "config.json").read_text())
    return found


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(path)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "source"
    assert pretrain(run, "--max-steps", "4", "--contrast-every", "0", method="moco-v2") == 0
    return run


@pytest.fixture(scope="module")
def adapted(source: Path) -> Path:
    run = source.parent / "adapted"
    assert pretrain(run, "--max-steps", "8", "--init", str(source), "--warmup-head-epochs", "0.5", method="jcl") == 0
    return run


def test_the_start_is_kept_and_measured_as_the_end_is(source: Path, adapted: Path) -> None:
    assert (adapted / "start.safetensors").read_bytes() == (source / "encoder.safetensors").read_bytes()
    start = facts(adapted)["start"]
    assert start["weights"] == str(source / "encoder.safetensors")
    assert start.keys() == {"weights", "knn", "recognised", "feature_rank"}
    assert start.keys() - {"weights"} <= lines(adapted)[-1].keys()
    assert start_of(adapted) == {name: start[name] for name in ("knn", "recognised", "feature_rank")}
    assert facts(source)["start"] is None
    assert start_of(source) == {}
    assert not (source / "start.safetensors").exists()


def test_the_head_learns_alone_first(source: Path, tmp_path: Path) -> None:
    """Only the statistics of batch normalisation follow the images meanwhile."""
    run = tmp_path / "run"
    words = ["--max-steps", "3", "--init", str(source), "--warmup-head-epochs", "0.5", "--contrast-every", "0"]
    assert pretrain(run, *words, "--checkpoint-every", "1", "--keep", "9", "--knn-every", "0") == 0
    before = weights_of(source / "encoder.safetensors")
    states = [
        torch.load(run / f"checkpoints/step-0000000{step}.pt", weights_only=True)["method"] for step in (0, 1, 2, 3)
    ]

    def same(state: dict[str, torch.Tensor]) -> set[str]:
        return {name for name, each in before.items() if torch.equal(state[f"encoder.backbone.{name}"], each)}

    learnt = {name for name in before if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    assert same(states[0]) == before.keys()
    assert same(states[1]) == same(states[2]) == learnt
    assert not same(states[3]) & {"conv1.weight", "layer1.0.conv1.weight"}
    heads = [state["encoder.head.0.weight"] for state in states]
    assert not any(torch.equal(one, other) for one, other in pairwise(heads))


def test_the_backbone_learns_more_slowly_layer_by_layer(source: Path, tmp_path: Path) -> None:
    words = [*FLAGS, "--out", str(tmp_path), "--init", str(source), "--lr", "0.4", "--backbone-lr", "0.1"]
    config = parse_run(find("moco-v2"), [*words, "--layer-decay", "0.5"]).config
    from manyview.run.build import build

    method = build(find("moco-v2"), config, parse_run(find("moco-v2"), words).source, looks=False).method
    optimizer = build_optimizer(method, config.optim)
    names = {id(each): name for name, each in method.named_parameters()}
    rates = {
        names[id(each)]: group["lr"] * group.get("lr_scale", 1.0)
        for group in optimizer.param_groups
        for each in group["params"]
    }
    assert rates.keys() == {name for name, each in method.named_parameters() if each.requires_grad}
    assert rates["encoder.head.0.weight"] == 0.4
    stem, *blocks = (rates[f"encoder.backbone.{name}.weight"] for name in ("conv1", "layer1.0.conv1", "layer4.0.conv1"))
    assert stem < blocks[0] < blocks[1] <= 0.1
    assert optimizer.param_groups[0]["lr"] == 0.4


def test_a_killed_run_resumes_to_the_same_bytes_without_the_weights(source: Path, tmp_path: Path) -> None:
    """The file that it started from may be gone."""
    copy = shutil.copytree(source, tmp_path / "source")
    words = ["--init", str(copy), "--checkpoint-every", "3", "--max-steps", "40", "--contrast-every", "4"]
    assert pretrain(tmp_path / "whole", *words) == 0
    victim = Command("pretrain", "moco-v2", "--out", str(tmp_path / "cut"), *FLAGS, *words, log=tmp_path / "log")
    victim.wait_until(lambda: len(list((tmp_path / "cut/checkpoints").glob("step-*.pt"))) >= 3)
    victim.send(signal.SIGKILL)
    victim.wait()
    shutil.rmtree(copy)
    assert main(["resume", str(tmp_path / "cut")]) == 0
    for name in ("encoder.safetensors", "start.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_without_labels_the_looks_need_none(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--max-steps", "4", "--unlabelled", "--init", str(source)) == 0
    assert facts(run)["start"].keys() == {"weights", "recognised", "feature_rank"}


def test_a_fall_below_the_start_is_told_once_with_the_way_out(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learning rate that makes the features useless."""
    run = tmp_path / "run"
    words = ["--unlabelled", "--init", str(source), "--max-steps", "12", "--contrast-every", "1"]
    assert pretrain(run, *words, "--lr", "300", "--backbone-lr", "300", "--warmup-head-epochs", "0") == 0
    out = capsys.readouterr().out
    assert out.count("worse than at the start: ") == 1
    assert "start again with a lower --backbone-lr (now 300)" in out


def test_what_has_clearly_fallen() -> None:
    start = {"knn": 0.5, "recognised": 0.9, "feature_rank": 80.0}
    samples = {"knn": 400, "recognised": 400}
    assert fallen(start, {"knn": 0.46, "recognised": 0.1, "feature_rank": 1.0}, samples) == []  # by chance
    [told] = fallen(start, {"knn": 0.38, "recognised": 0.9, "feature_rank": 80.0}, samples)
    assert told == "kNN accuracy 38.0\u202f%, at the start 50.0\u202f%"
    label_free = {name: start[name] for name in ("recognised", "feature_rank")}
    assert fallen(label_free, {"recognised": 0.88, "feature_rank": 41.0}, samples) == []
    assert len(fallen(label_free, {"recognised": 0.5, "feature_rank": 39.0}, samples)) == 2
    assert fallen({}, {"knn": 0.0}, samples) == []


def test_looks_without_the_accuracy_do_not_end_a_fall() -> None:
    watch = Watch({"knn": 0.5, "recognised": 0.9}, {"knn": 400, "recognised": 400}, "turn")
    courses = {"knn": 0.3}, {"recognised": 0.9}, {"knn": 0.3, "recognised": 0.9}, {"recognised": 0.1}
    assert [bool(watch(looks)) for looks in courses] == [True, False, False, False]
    assert [bool(watch({"knn": value})) for value in (0.5, 0.3)] == [False, True]


def test_the_settings_of_the_weights_hold_unless_flags_differ(source: Path, tmp_path: Path) -> None:
    words = [*FLAGS, "--out", str(tmp_path), "--init", str(source)]
    for preset in ("auto", "small", "paper"):
        parsed = parse_run(find("jcl"), [*words, "--preset", preset])
        assert parsed.weights is not None
        assert parsed.config.encoder.backbone == "tiny"
        assert parsed.config.optim.backbone_lr == pytest.approx(0.3 * parsed.config.optim.lr)
        assert parsed.config.optim.warmup_head_epochs > 0
        assert parsed.reasons["backbone"] == "that of --init"
        faster = parse_run(find("jcl"), [*words, "--preset", preset, "--lr", "0.5"]).config.optim
        assert faster.lr == 0.5
        assert faster.backbone_lr == pytest.approx(0.15)
    longer = parse_run(find("jcl"), [*words, "--max-steps", "160"])  # of 4 to an epoch
    assert longer.config.optim.warmup_head_epochs == 2
    asked = parse_run(find("jcl"), [*words, "--backbone-lr", "0.5", "--warmup-head-epochs", "0", "--knn-every", "0"])
    assert (asked.config.optim.backbone_lr, asked.config.optim.warmup_head_epochs) == (0.5, 0.0)
    assert asked.config.run.knn_every == 0


def test_weights_of_timm_are_those_of_the_network_that_is_meant(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meant = []

    def opened(spec: str, backbone: str | None) -> Weights:
        meant.append((spec, backbone))
        return open_weights(source)

    monkeypatch.setattr("manyview.run.adaptation.open_weights", opened)
    words = [*FLAGS, "--out", str(tmp_path), "--init", "timm"]
    for more in (["--preset", "auto"], ["--preset", "paper"], ["--preset", "paper", "--backbone", "resnet34"]):
        with suppress(UserError):  # the weights are none of that network
            parse_run(find("jcl"), [*words, *more])
    assert meant == [("timm", "resnet18"), ("timm", "resnet50"), ("timm", "resnet34")]


def test_the_statistics_of_the_weights_can_be_kept(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--max-steps", "3", "--norm", "fixed", "--contrast-every", "0", "--knn-every", "0"]
    assert pretrain(tmp_path / "run", *words, "--init", str(source)) == 0
    before, after = (weights_of(path / "encoder.safetensors") for path in (source, tmp_path / "run"))
    kept = {name for name in before if torch.equal(before[name], after[name])}
    assert kept == {name for name in before if "running" in name or "batches" in name}
    capsys.readouterr()
    told = mistake(capsys, "pretrain", "jcl", "--out", str(tmp_path / "new"), *FLAGS, "--norm", "fixed")
    assert "--norm fixed keeps the statistics of trained weights: name them with --init" in told


def test_the_normalisation_of_the_weights_goes_with_the_encoder(source: Path, tmp_path: Path) -> None:
    own = ["--channel-mean", "0.1", "0.2", "0.3", "--channel-std", "0.5", "0.6", "0.7", "--contrast-every", "0"]
    assert pretrain(tmp_path / "a", "--max-steps", "2", *own) == 0
    assert load(tmp_path / "a").card.mean == (0.1, 0.2, 0.3)
    more = ["--max-steps", "2", "--contrast-every", "0", "--knn-every", "0"]
    assert pretrain(tmp_path / "b", *more, "--init", str(tmp_path / "a")) == 0
    assert load(tmp_path / "b").card.std == (0.5, 0.6, 0.7)


def test_other_channels_than_those_of_the_weights(source: Path, tmp_path: Path) -> None:
    folder, random = tmp_path / "grey", np.random.default_rng(0)
    folder.mkdir()
    for number in range(32):
        Image.fromarray(random.integers(0, 255, (16, 16), dtype=np.uint8)).save(folder / f"{number}.png")
    words = ["--init", str(source), "--max-steps", "2", "--channels", "1", "--contrast-every", "0"]
    assert pretrain(tmp_path / "run", *words, "--data", str(folder)) == 0
    assert load(tmp_path / "run").card.in_channels == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--init", "nowhere"], "--init: nowhere does not exist: give a run directory"),
        (["--init", "timm:resnet18.nothing"], "--init: timm has no weights 'nothing' of resnet18"),
        (["--init", "SOURCE", "--backbone", "resnet18"], "holds a network with --backbone tiny, not resnet18"),
        (["--init", "SOURCE", "--norm", "group"], "holds a network with --norm batch, not group"),
    ],
)
def test_weights_that_do_not_fit_leave_nothing_behind(
    words: list[str], told: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(source) if word == "SOURCE" else word for word in words]
    run = tmp_path / "run"
    assert told in mistake(capsys, "pretrain", "jcl", "--out", str(run), *FLAGS, *words)
    assert not run.exists()


def test_towers_start_from_towers(tmp_path: Path, capsys: pytest.CaptureFixture[str], source: Path) -> None:
    words = ["pretrain", "cmc", "--data", "scenes:64", "--batch-size", "16", "--image-size", "16", "--max-steps", "2"]
    words += ["--contrast-every", "0", "--workers", "0", "--knn-every", "0"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert main([*words, "--out", str(tmp_path / "b"), "--init", str(tmp_path / "a")]) == 0
    assert (tmp_path / "b/start.safetensors").read_bytes() == (tmp_path / "a/encoder.safetensors").read_bytes()
    capsys.readouterr()
    told = mistake(capsys, *words, "--out", str(tmp_path / "c"), "--init", str(source))
    assert "holds one network for whole images, not one for each view of lab" in told
