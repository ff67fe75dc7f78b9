"""Whole runs: what they leave behind, and that stopping, dying and resuming change nothing."""

import json
import math
import random
import shutil
import signal
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from running import Command, lines, mistake

import manyview
from manyview.cli import main
from manyview.data import open_source
from manyview.diagnose.contrast import CONTRAST
from manyview.diagnose.monitor import ContrastMonitor
from manyview.diagnose.rules import findings
from manyview.encoders import EncoderConfig, build_encoder
from manyview.errors import UserError
from manyview.evaluate.knn import knn_accuracy
from manyview.methods.base import ViewBatch
from manyview.methods.jcl import JCL
from manyview.run import snapshots
from manyview.train import Taken, read
from manyview.views import Augment, policy

FLAGS = ["--batch-size", "16", "--queue-size", "32", "--seed", "3", "--keys", "2", "--image-size", "16"]
FLAGS += ["--contrast-every", "0"]  # it takes longer than the steps of these runs
MEASURED = ["--contrast-every", "1"]


def reopened(run: Path) -> Path:
    """The run as if it had not been finished: its page is written last."""
    (run / "report.html").unlink(missing_ok=True)
    return run


def resume(run: Path, *words: str) -> int:
    return main(["resume", str(reopened(run)), *words])


def pretrain(out: Path, *flags: str, method: str = "jcl", data: str = "scenes:64") -> int:
    return main(["pretrain", method, "--data", data, "--out", str(out), *FLAGS, *flags])


def edit_config(run: Path, group: str, key: str, value: object) -> None:
    facts = json.loads((run / "config.json").read_text())
    facts["config"][group][key] = value
    (run / "config.json").write_text(json.dumps(facts))


def computed(run: Path) -> list[dict[str, float]]:
    """What a run wrote down of each step, but for how long it took."""
    return [{k: v for k, v in entry.items() if k not in ("images_per_s", "wait")} for entry in lines(run)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One undisturbed run that many tests look at."""
    run = tmp_path_factory.mktemp("runs") / "jcl"
    assert pretrain(run, "--max-steps", "10", "--checkpoint-every", "4", *MEASURED) == 0
    return run


def test_a_run_directory_holds_what_it_promises(finished: Path) -> None:
    facts = json.loads((finished / "config.json").read_text())
    assert (facts["method"], facts["preset"]) == ("jcl", "auto")
    assert facts["config"]["encoder"]["backbone"] == "tiny"
    assert facts["config"]["method"] == {
        "temperature": 0.1, "queue_size": 32, "momentum": 0.99, "queue_start": "random", "mask_own": True,
        "key_passes": 1, "keys": 2, "lam": 4.0, "lam_schedule": "linear", "enqueue": "mean",
    }  # fmt: skip
    assert facts["data"]["samples"] == 64
    assert [entry["step"] for entry in lines(finished)] == list(range(10))
    assert lines(finished)[-1]["epoch"] == pytest.approx(2.5)
    assert lines(finished)[-1]["lam"] == pytest.approx(4.0)
    assert sorted(p.name for p in (finished / "checkpoints").glob("step-*")) == [
        "step-00000004.pt", "step-00000008.pt", "step-00000010.pt",
    ]  # fmt: skip
    assert (finished / "report.html").read_text().startswith("<!")
    assert list((finished / "tensorboard").iterdir())
    assert not (finished / "unreadable.txt").exists()


def test_the_state_before_the_first_step_is_saved_too(tmp_path: Path) -> None:
    assert pretrain(tmp_path / "run", "--max-steps", "2") == 0
    names = sorted(p.name for p in (tmp_path / "run/checkpoints").glob("step-*"))
    assert names == ["step-00000000.pt", "step-00000002.pt"]


def test_snapshots_stand_at_even_distances(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--max-steps", "10", "--snapshots", "4") == 0
    assert snapshots.steps_of(run) == [0, 2, 5, 8, 10]
    state = torch.load(run / "checkpoints/latest.pt", weights_only=True)["method"]
    [(at_start, first), (at_end, last)] = snapshots.encoders_of(run, {0, 10})
    assert (at_start, at_end) == (0, 10)
    for name, value in last.state_dict().items():
        assert torch.equal(value, state[f"encoder.{name}"])
    assert not first.training
    (run / "snapshots/step-00000008.safetensors").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"snapshot .*00008\.safetensors cannot be read"):
        list(snapshots.encoders_of(run))


def test_a_run_without_snapshots_says_how_to_have_some(finished: Path) -> None:
    with pytest.raises(UserError, match="has no snapshots: start the run with --snapshots 10"):
        snapshots.steps_of(finished)


def test_the_encoder_is_the_query_backbone_and_loads_frozen(finished: Path) -> None:
    state = torch.load(finished / "checkpoints/latest.pt", weights_only=True)["method"]
    encoder = manyview.load(finished)
    for name, value in encoder.backbone.state_dict().items():
        assert torch.equal(value, state[f"encoder.backbone.{name}"])
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    features = encoder(images)
    assert features.shape == (2, 256)
    assert not features.requires_grad


def test_the_same_seed_gives_the_same_encoder_and_another_seed_another(finished: Path, tmp_path: Path) -> None:
    assert pretrain(tmp_path / "again", "--max-steps", "10") == 0
    assert pretrain(tmp_path / "other", "--max-steps", "10", "--seed", "4") == 0
    original = (finished / "encoder.safetensors").read_bytes()
    assert (tmp_path / "again/encoder.safetensors").read_bytes() == original
    assert (tmp_path / "other/encoder.safetensors").read_bytes() != original


@pytest.mark.parametrize(
    ("method", "workers"),
    [
        *[("jcl", "2"), ("cacr-moco", "0"), ("cmc", "0")],
        # These keep nothing that one of the others does not.
        *(pytest.param(method, "0", marks=pytest.mark.slow) for method in ("jcl", "moco-v2", "simclr", "cacr")),
    ],
)
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path, method: str, workers: str) -> None:
    whole, killed, log = tmp_path / "whole", tmp_path / "killed", tmp_path / "log"
    own = {"jcl": ["--queue-size", "32", "--keys", "2"], "moco-v2": ["--queue-size", "32"], "simclr": []}
    own |= {"cacr": ["--views", "3"], "cacr-moco": ["--queue-size", "32", "--views", "3"]}
    own |= {"cmc": ["--draw", "20", "--contrast", "nce", "--views", "lab,depth", "--missing", "0.3"]}
    words = ["pretrain", method, "--data", "scenes:64", "--seed", "3", "--batch-size", "16", "--image-size", "16"]
    words += [*own[method], "--max-steps", "30", "--checkpoint-every", "3", "--workers", workers]
    words += ["--contrast-every", "3", "--snapshots", "4"]
    assert main([*words, "--out", str(whole)]) == 0
    victim, step = Command(*words, "--out", str(killed), log=log), random.randrange(1, 8) * 3
    victim.wait_until(lambda: (killed / f"checkpoints/step-{step:08d}.pt").exists())
    victim.send(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert not (killed / "encoder.safetensors").exists()
    assert resume(killed) == 0
    for file in ("encoder", *(f"snapshots/step-{number:08d}" for number in (0, 8, 15, 22, 30))):
        assert (killed / f"{file}.safetensors").read_bytes() == (whole / f"{file}.safetensors").read_bytes()
    kept = [torch.load(run / "checkpoints/latest.pt", weights_only=True)["method"] for run in (killed, whole)]
    assert kept[0].keys() == kept[1].keys()  # with queues, banks and the constants of NCE
    assert all(torch.equal(value, kept[1][name]) for name, value in kept[0].items())
    assert [entry["step"] for entry in lines(killed)] == list(range(30))
    assert computed(killed) == computed(whole)
    assert [entry["step"] for entry in lines(killed) if "entropy" in entry] == [11, 23, 29]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    words = ["pretrain", "jcl", "--data", "scenes:64", "--out", str(run), *FLAGS, "--max-steps", "5000"]
    process = Command(*words, "--log-every", "1", log=log)
    process.wait_until(lambda: "step 2/5000" in log.read_text())
    process.send(number)
    assert process.wait() == 128 + number
    output = log.read_text()
    assert f"stopped by {number.name}" in output
    assert f"manyview resume {run}" in output
    assert "Traceback" not in output
    assert (run / f"checkpoints/step-{len(lines(run)):08d}.pt").exists()


def test_a_finished_run_resumes_to_nothing_but_its_report(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (finished / "encoder.safetensors").read_bytes()
    (finished / "report.html").unlink()
    assert resume(finished) == 0
    assert "at step 10 of 10" in capsys.readouterr().out
    assert (finished / "encoder.safetensors").read_bytes() == before
    assert (finished / "report.html").exists()
    assert len(lines(finished)) == 10


def test_a_finished_run_is_left_as_it_is(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def files() -> dict[Path, tuple[bytes, int]]:
        found = [path for path in sorted(finished.rglob("*")) if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}

    before = files()
    assert main(["resume", str(finished), "--data", str(finished)]) == 0  # which is not even opened
    encoder, page = finished / "encoder.safetensors", finished / "report.html"
    assert f"{finished} is already finished: its encoder is {encoder}, its page {page}" in capsys.readouterr().out
    assert files() == before


def test_pretrain_into_a_used_directory_names_resume(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(finished, "--max-steps", "10") == 2
    message = capsys.readouterr().err
    assert f"manyview resume {finished}" in message
    assert message.count("\n") == 1


def test_resume_refuses_another_configuration_with_a_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--max-steps", "3") == 0
    edit_config(run, "optim", "lr", 0.5)
    assert resume(run) == 2
    message = capsys.readouterr().err
    assert "- lr = 0.03" in message
    assert "+ lr = 0.5" in message


def test_resume_refuses_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--max-steps", "3") == 0
    assert resume(run, "--data", "scenes:80") == 2
    assert "--data scenes:80 is not what" in capsys.readouterr().err


def test_a_checkpoint_that_does_not_fit_is_one_line_that_names_who_wrote_it(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run, symlinks=True)
    facts = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(facts | {"version": "0.0.9"}))
    path = run / "checkpoints/step-00000010.pt"
    state = torch.load(path, weights_only=True)
    changes: list[dict[str, Any]] = [
        {"method": {"keys": state["method"]["queue.keys"]}},
        {"method": {**state["method"], "queue.keys": torch.zeros(3, 3)}},
        {"optimizer": {}},
        {"step": "x"},
    ]
    for wrong in changes:
        torch.save({**state, **wrong}, path)
        assert resume(run) == 2
        message = capsys.readouterr().err
        assert "step-00000010.pt does not fit jcl (manyview 0.0.9 wrote it" in message
        assert "resume it with manyview 0.0.9" in message
        assert message.count("\n") == 1
    for config in (None, "{", 3, "[]"):
        torch.save({**state, "config": config}, path)
        assert "step-00000010.pt" in mistake(capsys, "resume", str(reopened(run)))
    torch.save(["a list"], path)
    assert "step-00000010.pt holds no configuration: remove it" in mistake(capsys, "resume", str(reopened(run)))


@pytest.mark.parametrize("name", ["data", "contrast"])
@pytest.mark.parametrize("told", [None, [], {}, {"fingerprint": 3}])
def test_resume_refuses_a_config_that_does_not_say_what_was_read(
    name: str, told: Any, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run, symlinks=True)
    facts = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(facts | {name: told}))
    assert f"config.json lacks the fingerprint of its {name}: restore it" in mistake(
        capsys, "resume", str(reopened(run))
    )


def test_a_run_that_is_older_than_a_flag_goes_on_with_its_default(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run, symlinks=True)
    (run / "checkpoints/step-00000010.pt").unlink()
    facts, older = json.loads((run / "config.json").read_text()), run / "checkpoints/step-00000008.pt"
    state = torch.load(older, weights_only=True)
    saved = json.loads(state["config"])
    for config in (saved, facts["config"]):
        del config["method"]["enqueue"], config["run"]["snapshots"]
    torch.save({**state, "config": json.dumps(saved)}, older)
    (run / "config.json").write_text(json.dumps(facts))
    assert resume(run) == 0
    assert (run / "encoder.safetensors").read_bytes() == (finished / "encoder.safetensors").read_bytes()
    (run / "checkpoints/step-00000010.pt").unlink()
    edit_config(run, "method", "enqueue", "first")
    assert resume(run) == 2
    assert "- enqueue = mean; + enqueue = first" in capsys.readouterr().err


def test_a_subset_is_drawn_once_and_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--max-steps", "4", "--checkpoint-every", "2", "--subset", "90"]
    assert pretrain(run, *words, data="scenes:200") == 0
    data = json.loads((run / "config.json").read_text())["data"]
    part = manyview.data.fewer(manyview.data.open_source("scenes:200"), 90, seed=3)
    assert (data["samples"], data["fingerprint"]) == (90, part.fingerprint)
    whole = (run / "encoder.safetensors").read_bytes()
    (run / "checkpoints/step-00000004.pt").unlink()
    (run / "encoder.safetensors").unlink()
    assert resume(run) == 0
    assert (run / "encoder.safetensors").read_bytes() == whole


IMBALANCED = ["--imbalance", "exponential", "--imbalance-ratio", "10", "--checkpoint-every", "2"]


@pytest.fixture(scope="module")
def imbalanced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "imbalanced"
    assert pretrain(run, "--max-steps", "4", *IMBALANCED, data="scenes:200") == 0
    return run


def test_an_imbalanced_run_tells_and_keeps_its_class_counts(
    imbalanced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = manyview.data.imbalanced(manyview.data.open_source("scenes:200"), "exponential", ratio=10, seed=3)
    data = json.loads((imbalanced / "config.json").read_text())["data"]
    assert data["class_counts"] == source.class_counts
    assert min(source.class_counts) < 0.2 * max(source.class_counts)
    assert (data["samples"], data["fingerprint"]) == (sum(source.class_counts), source.fingerprint)
    told = ", ".join(map(str, source.class_counts))
    assert told in (imbalanced / "report.html").read_text()
    assert pretrain(tmp_path / "again", "--max-steps", "1", *IMBALANCED, data="scenes:200") == 0
    assert f"exponential (--imbalance), images per class: {told}" in " ".join(capsys.readouterr().out.split())


def test_an_imbalanced_run_resumes_with_the_same_samples(imbalanced: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(imbalanced, again, symlinks=True)
    (again / "checkpoints/step-00000004.pt").unlink()
    (again / "encoder.safetensors").unlink()
    assert resume(again) == 0
    assert (again / "encoder.safetensors").read_bytes() == (imbalanced / "encoder.safetensors").read_bytes()
    (again / "report.html").unlink()
    assert main(["report", str(again)]) == 0
    samples = json.loads((again / "config.json").read_text())["data"]["samples"]
    assert f"nearest neighbours among {samples} images" in (again / "report.html").read_text()


@pytest.mark.parametrize(("key", "value"), [("imbalance", "linear"), ("imbalance", "none"), ("imbalance_ratio", 20.0)])
def test_resume_refuses_another_imbalance(
    imbalanced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    again = tmp_path / "again"
    shutil.copytree(imbalanced, again, symlinks=True)
    edit_config(again, "data", key, value)
    assert resume(again) == 2
    message = capsys.readouterr().err
    assert f"+ {key} = {value}" in message
    assert "resume with the saved one" in message


def test_knn_and_evaluations_of_an_imbalanced_run_see_all_samples(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--epochs", "1", "--knn-every", "1", *IMBALANCED, data="scenes:200") == 0
    assert "knn" in lines(run)[-1]
    assert main(["evaluate", "knn", str(run), "--data", "scenes:200", "--no-random"]) == 0
    record = json.loads((run / "evaluations.json").read_text())[0]
    assert (record["facts"]["train_samples"], record["facts"]["test_samples"]) == (200, 2000)
    assert record["metrics"]["top-1"]["value"] == pytest.approx(lines(run)[-1]["knn"])


def test_a_loss_that_is_not_finite_names_step_samples_and_the_last_good_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    code = pretrain(run, "--max-steps", "40", "--lr", "1e30", "--checkpoint-every", "1", "--optimizer", "sgd")
    message = capsys.readouterr().err
    assert code == 2
    assert "the loss is nan in step" in message
    assert f"its samples are in {run / 'metrics.jsonl'}" in message
    last = max((run / "checkpoints").glob("step-*.pt"))
    assert str(last) in message
    assert torch.load(last, weights_only=True)["step"] == int(last.stem.split("-")[1])
    broken = lines(run)[-1]
    assert (broken["step"], broken["loss"]) == (int(last.stem.split("-")[1]), None)
    assert len(set(broken["samples"])) == json.loads((run / "config.json").read_text())["config"]["optim"]["batch_size"]
    assert any("NaN or infinite in step" in found.text for found in findings(run) if found.level == "problem")
    assert not (run / "encoder.safetensors").exists()


def test_a_run_whose_steps_are_read_in_bursts_as_on_a_gpu_is_the_same_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyview.run.pretrain.waits_for", lambda device: False)
    bursts = list[int]()

    def counted(taken: Sequence[Taken]) -> Iterator[Any]:
        bursts.append(len(taken))
        return read(taken)

    monkeypatch.setattr("manyview.run.pretrain.read", counted)
    run = tmp_path / "run"
    assert pretrain(run, "--max-steps", "10", "--checkpoint-every", "4", "--log-every", "7", *MEASURED) == 0
    assert bursts == [4, 3, 1, 2]  # before every measurement, checkpoint and line of the log, and at the end
    assert computed(run) == computed(finished)
    assert (run / "encoder.safetensors").read_bytes() == (finished / "encoder.safetensors").read_bytes()


def test_no_checkpoint_follows_a_step_that_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read late, as on a GPU: the bad step lies between two checkpoints, and is found before the second is written."""
    monkeypatch.setattr("manyview.run.pretrain.waits_for", lambda device: False)
    step = JCL.step

    def broken(self: JCL, batch: ViewBatch) -> dict[str, torch.Tensor]:
        metrics = step(self, batch)
        if batch.step == 5:  # a finite loss with an infinite gradient
            metrics["loss"] = metrics["loss"] + (metrics["loss"] - metrics["loss"]).abs().sqrt()
        return metrics

    monkeypatch.setattr(JCL, "step", broken)
    run = tmp_path / "run"
    assert pretrain(run, "--max-steps", "10", "--checkpoint-every", "4", "--log-every", "100") == 2
    message = capsys.readouterr().err
    assert "the gradient is not finite in step 5" in message
    assert "step-00000004.pt" in message
    assert [path.name for path in sorted((run / "checkpoints").glob("step-*"))] == [
        "step-00000000.pt",
        "step-00000004.pt",
    ]
    assert [(row["step"], row["loss"] is None) for row in lines(run)] == [(n, n == 5) for n in range(6)]


def test_a_wrong_value_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, words in (
        (["--batch-size", "65"], "--batch-size 65"),
        (["--queue-size", "65"], "--queue-size 65 exceeds the 64 samples"),
        (["--temperature", "0"], "--temperature 0 must be greater than 0"),
        (["--momentum", "1.5"], "--momentum 1.5 must lie between 0 and 1"),
        (["--lam", "-1"], "--lam -1 must not be negative"),
        (["--backbone", "resnet51"], "--backbone resnet51"),
        (["--augment", "moco"], "moco-v2"),
        (["--device", "cuda:7"], "--device cuda:7"),
        (["--bn-splits", "3"], "does not divide into equal parts by --bn-splits 3: use a multiple of 3"),
        (
            ["--accumulate", "3", "--bn-splits", "2"],
            "equal parts by --accumulate 3 and --bn-splits 2: use a multiple of 6",
        ),
        (["--min-crop", "1.5"], "--min-crop 1.5 must lie above 0"),
        (["--clip-grad", "-1"], "--clip-grad -1 must be greater than 0"),
        (["--lr", "nan"], "--lr nan must be a finite number"),
        (["--lr", "inf"], "--lr inf must be a finite number"),
        (["--milestones", "0.5", "1.5"], "--milestones 1.5 must lie between 0 and 1"),
        (["--seed", "-1"], "--seed -1 must lie between 0 and"),
        (["--key-passes", "0"], "--key-passes 0 must be greater than 0"),
        (["--subset", "0"], "--subset 0 must be greater than 0"),
        (["--imbalance-ratio", "0.5"], "--imbalance-ratio 0.5 must be at least 1"),
        (["--imbalance", "exponential", "--imbalance-ratio", "0"], "--imbalance-ratio 0 must be at least 1"),
        (["--imbalance", "linear", "--unlabelled"], "--imbalance linear needs labels"),
        (["--contrast-every", "-1"], "--contrast-every -1 must not be negative"),
        (["--contrast-t-neg", "0"], "--contrast-t-neg 0 must be greater than 0"),
        ([*MEASURED, "--contrast-data", "nowhere/"], "--contrast-data: 'nowhere/' does not exist"),
        ([*MEASURED, "--contrast-data", "scenes:0"], "--contrast-data: 'scenes:0' does not say how many images"),
    ):
        assert pretrain(tmp_path / "run", "--max-steps", "2", *flags) == 2, flags
        message = capsys.readouterr().err
        assert words in message
        assert message.count("\n") == 1
        assert not (tmp_path / "run").exists()


def photos(folder: Path, count: int, broken: int) -> Path:
    """Images of differing sizes, some of them cut off."""
    folder.mkdir()
    draw = random.Random(0)
    for i in range(count):
        size = draw.randint(20, 60), draw.randint(20, 60)
        image = Image.frombytes("RGB", size, draw.randbytes(3 * size[0] * size[1]))
        image.save(folder / f"{i:03d}.jpg")
    for i in range(broken):
        path = folder / f"{i:03d}.jpg"
        path.write_bytes(path.read_bytes()[:600])
    return folder


@pytest.mark.parametrize("workers", ["0", "2"])
def test_unreadable_images_are_listed_and_training_goes_on(tmp_path: Path, workers: str) -> None:
    data = photos(tmp_path / "photos", 64, broken=3)
    assert pretrain(tmp_path / "run", "--max-steps", "8", "--workers", workers, data=str(data)) == 0
    listed = (tmp_path / "run/unreadable.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in listed] == ["000.jpg", "001.jpg", "002.jpg"]
    assert len(lines(tmp_path / "run")) == 8


def test_too_many_unreadable_images_end_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = photos(tmp_path / "photos", 64, broken=8)
    assert pretrain(tmp_path / "run", "--max-steps", "8", data=str(data)) == 2
    assert "cannot be read, more than 5%" in capsys.readouterr().err


def test_knn_is_measured_every_n_epochs(tmp_path: Path) -> None:
    assert pretrain(tmp_path / "run", "--epochs", "3", "--knn-every", "2") == 0
    measured = {entry["step"]: entry["knn"] for entry in lines(tmp_path / "run") if "knn" in entry}
    assert set(measured) == {7, 11}  # and after the last step
    assert all(0 <= value <= 1 for value in measured.values())


def test_the_workers_of_a_run_read_for_knn_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(*arguments: Any, **settings: Any) -> float:
        asked.append(settings["workers"])
        return knn_accuracy(*arguments, **settings)

    monkeypatch.setattr("manyview.run.pretrain.knn_accuracy", noted)
    assert pretrain(tmp_path / "run", "--epochs", "1", "--knn-every", "1", "--workers", "2") == 0
    assert asked == [2]


def test_measuring_knn_does_not_change_the_run(finished: Path, tmp_path: Path) -> None:
    assert pretrain(tmp_path / "run", "--max-steps", "10", "--knn-every", "1") == 0
    assert (tmp_path / "run/encoder.safetensors").read_bytes() == (finished / "encoder.safetensors").read_bytes()


def measured(run: Path) -> dict[int, dict[str, float]]:
    """The contrast by step, where there is any."""
    rows = {entry["step"]: {key: entry[key] for key in CONTRAST if key in entry} for entry in lines(run)}
    return {step: row for step, row in rows.items() if row}


def test_contrast_is_measured_at_the_end_of_epochs_and_of_the_run(finished: Path) -> None:
    found = measured(finished)
    assert list(found) == [3, 7, 9]  # epochs of four steps
    for values in found.values():
        assert tuple(values) == CONTRAST
        assert 0 < values["entropy"] < values["max_entropy"] == pytest.approx(math.log(255))
        assert 1 / 255 < values["nearest_weight"] < 1
        assert 1 < values["effective_negatives"] < 255
        assert 1 < values["effective_positives"] <= 4
    facts = json.loads((finished / "config.json").read_text())["contrast"]
    assert (facts["data"], facts["samples"], facts["views"]) == ("scenes (test split)", 512, 5)
    assert (facts["t_pos"], facts["t_neg"]) == (1.0, 2.0)
    page = (finished / "report.html").read_text()
    assert "Measured on 512 images of scenes (test split), always with the same 5 views of each" in page
    assert "Conditional entropy of the negative weights: from" in page


def test_what_is_measured_are_the_weights_of_that_step(finished: Path) -> None:
    state = torch.load(finished / "checkpoints/step-00000008.pt", weights_only=True)["method"]
    encoder = build_encoder(EncoderConfig(backbone="tiny"))
    encoder.load_state_dict(
        {name.removeprefix("encoder."): value for name, value in state.items() if name.startswith("encoder.")}
    )
    augment = Augment(policy("moco-v2", min_crop=0.6), views=2, size=16, seed=3)
    again = ContrastMonitor(open_source("scenes:64", split="test"), augment, name="scenes", t_neg=2.0)
    found = again(encoder)
    assert {name: found[name] for name in CONTRAST} == measured(finished)[7]
    assert found.items() <= lines(finished)[7].items()


def test_measuring_contrast_does_not_change_the_run(finished: Path, tmp_path: Path) -> None:
    assert pretrain(tmp_path / "run", "--max-steps", "10") == 0
    assert measured(tmp_path / "run") == {}
    assert json.loads((tmp_path / "run/config.json").read_text())["contrast"] is None
    assert (tmp_path / "run/encoder.safetensors").read_bytes() == (finished / "encoder.safetensors").read_bytes()


def test_methods_are_measured_alike(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run shorter than an epoch has one measurement; another t⁻ changes what depends on it."""
    words = ["--data", "scenes:64", "--seed", "3", "--batch-size", "16", "--image-size", "16", "--max-steps", "2"]
    for t_neg in ("2", "4"):
        assert main(["pretrain", "simclr", *words, "--out", str(tmp_path / t_neg), "--contrast-t-neg", t_neg]) == 0
    assert "measured on 512 images of scenes (test split)" in capsys.readouterr().out
    two, four = measured(tmp_path / "2")[1], measured(tmp_path / "4")[1]
    assert list(measured(tmp_path / "2")) == [1]
    assert two["max_entropy"] == pytest.approx(measured(finished)[9]["max_entropy"])
    assert two["nearest_weight"] < four["nearest_weight"]
    assert two["uniformity"] == four["uniformity"]


def test_contrast_is_measured_on_training_images_where_there_are_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run, whole = photos(tmp_path / "photos", 64, broken=3), tmp_path / "run", tmp_path / "whole"
    assert pretrain(whole, "--max-steps", "6", *MEASURED, data=str(data)) == 0
    assert "measured on 61 images of" in " ".join(capsys.readouterr().out.split())
    facts = json.loads((whole / "config.json").read_text())
    assert facts["contrast"]["data"].endswith("photos/ (training data)")
    assert facts["contrast"]["fingerprint"] == facts["data"]["fingerprint"]
    shutil.copytree(whole, run, symlinks=True)
    (run / "checkpoints/step-00000006.pt").unlink()
    moved = data.rename(tmp_path / "moved")
    assert resume(run, "--data", str(moved)) == 0
    assert computed(run) == computed(whole)
    assert list(measured(run)) == [3, 5]


def test_a_set_whose_test_part_is_missing_can_still_be_learnt_from(tmp_path: Path) -> None:
    photos(tmp_path / "train", 0, broken=0)
    photos(tmp_path / "train/n01", 32, broken=0)
    assert pretrain(tmp_path / "run", "--max-steps", "2", *MEASURED, data=f"imagenet:{tmp_path}") == 0
    facts = json.loads((tmp_path / "run/config.json").read_text())
    assert facts["contrast"]["data"] == "imagenet (training data)"


def test_contrast_is_measured_on_the_images_that_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = photos(tmp_path / "photos", 20, broken=0), tmp_path / "run"
    flags = [*MEASURED, "--contrast-data", str(data), "--precision", "float64"]
    assert pretrain(run, "--max-steps", "2", *flags) == 0
    facts = json.loads((run / "config.json").read_text())
    assert facts["contrast"]["data"].endswith("photos/ (--contrast-data)")
    assert facts["contrast"]["samples"] == 20
    assert measured(run)[1]["max_entropy"] == pytest.approx(math.log(19))
    (data / "000.jpg").unlink()
    assert resume(run) == 2
    message = capsys.readouterr().err
    assert "contrast was measured on other images than" in message
    assert "photos/ (--contrast-data): name the original data" in message


def test_images_to_measure_of_which_too_few_can_be_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = photos(tmp_path / "photos", 1, broken=0)
    assert pretrain(tmp_path / "run", "--max-steps", "2", *MEASURED, "--contrast-data", str(data)) == 2
    message = capsys.readouterr().err
    assert "photos/ (--contrast-data): it needs two images, and 1 can be read" in message
    assert not (tmp_path / "run").exists()


def test_resume_refuses_to_measure_in_another_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--max-steps", "2") == 0
    edit_config(run, "run", "contrast_t_neg", 3.0)
    assert resume(run) == 2
    assert "+ contrast_t_neg = 3.0" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--norm", "group"], ["--bn-splits", "4"], ["--optimizer", "adamw", "--lr", "1e-3"]])
def test_other_set_ups_run(tmp_path: Path, flags: list[str]) -> None:
    assert pretrain(tmp_path / "run", "--max-steps", "2", *flags) == 0
    assert (tmp_path / "run/encoder.safetensors").exists()


@pytest.mark.parametrize("method", ["jcl", "moco-v2"])
def test_a_batch_in_four_parts_is_the_batch(tmp_path: Path, method: str) -> None:
    """Gradients add up; the queue is that of the step's beginning for all parts, and takes their keys in order."""
    words = [
        "pretrain",
        method,
        "--data",
        "scenes:512",
        "--batch-size",
        "256",
        "--queue-size",
        "300",
        "--norm",
        "group",
    ]
    words += ["--image-size", "16", "--norm", "group", "--precision", "float64", "--max-steps", "3"]
    words += ["--contrast-every", "0"]
    for accumulate in ("1", "4"):
        assert main([*words, "--accumulate", accumulate, "--out", str(tmp_path / accumulate)]) == 0
    whole, parts = (torch.load(tmp_path / a / "checkpoints/latest.pt", weights_only=True) for a in ("1", "4"))
    for name, value in whole["method"].items():
        torch.testing.assert_close(parts["method"][name], value, rtol=0, atol=1e-9)
    assert whole["method"]["queue.pushed"] == 768
    losses = [[entry["loss"] for entry in lines(tmp_path / a)] for a in ("1", "4")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_nearly_the_same_and_resumes_exactly(
    finished: Path, tmp_path: Path, precision: str
) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    assert pretrain(run, "--max-steps", "10", "--checkpoint-every", "4", "--precision", precision, *MEASURED) == 0
    halves, fulls = lines(run), lines(finished)
    for half, full in zip(halves, fulls, strict=True):
        assert half["loss"] != full["loss"]
        assert half.get("entropy", 0.0) == pytest.approx(full.get("entropy", 0.0), rel=0.05)
    # Step by step only at first: batches of 16 amplify rounding, by how much depends on the processor.
    assert halves[0]["loss"] == pytest.approx(fulls[0]["loss"], rel=0.02)
    assert halves[1]["loss"] == pytest.approx(fulls[1]["loss"], rel=0.05)
    mean, expected = (statistics.mean(each["loss"] for each in rows) for rows in (halves, fulls))
    assert mean == pytest.approx(expected, rel=0.03)
    state = torch.load(run / "checkpoints/step-00000004.pt", weights_only=True)
    assert bool(state["scaler"]) == (precision == "fp16")
    assert {tensor.dtype for tensor in state["method"].values()} <= {torch.float32, torch.int64}
    shutil.copytree(run, again, symlinks=True)
    for later in ("step-00000008.pt", "step-00000010.pt"):
        (again / "checkpoints" / later).unlink()
    assert resume(again) == 0
    assert (again / "encoder.safetensors").read_bytes() == (run / "encoder.safetensors").read_bytes()
    assert computed(again) == computed(run)


def test_dropout_depends_on_the_step_and_not_on_what_was_drawn_before(tmp_path: Path) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    flags = ["--backbone", "test_efficientnet", "--image-size", "32", "--max-steps", "4", "--checkpoint-every", "2"]
    assert pretrain(run, *flags) == 0
    shutil.copytree(run, again, symlinks=True)
    (again / "checkpoints/step-00000004.pt").unlink()
    torch.rand(3)
    assert resume(again) == 0
    assert (again / "encoder.safetensors").read_bytes() == (run / "encoder.safetensors").read_bytes()
