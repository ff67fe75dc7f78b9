"""What other packages register is found by name, used like our own, and refused in one line where it does not load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyview.encoders import EncoderConfig, build_encoder, save_backbone
from manyview.errors import UserError
from manyview.registry import Registry, entry_points

METHOD = '''
from dataclasses import dataclass

from manyview.methods.many_views import ManyViews, ManyViewsConfig
from manyview.objectives import nt_xent


@dataclass(frozen=True)
class CoolConfig(ManyViewsConfig):
    """A cool softmax."""

    temperature: float = 0.05
    """τ of the softmax."""


class Cool(ManyViews):
    name = "cool"
    title = "Cool"
    Config = CoolConfig

    def loss(self, views, pool):
        return nt_xent(views, temperature=self.config.temperature, **pool)
'''


def install(place: Path, package: str, entries: dict[str, dict[str, str]], **modules: str) -> None:
    """A package as pip leaves it behind: its modules, and a dist-info with what it registers."""
    info = place / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nSummary: Things of {package}\n"
    )
    (info / "entry_points.txt").write_text(
        "\n".join(f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in each.items()) for group, each in entries.items())
    )
    for name, text in modules.items():
        (place / f"{name}.py").write_text(text)


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


SOURCE = """
import torch
from manyview.data.source import Arrays

class Stripes(Arrays):
    def __init__(self, spec):
        self.name, self.fingerprint, self.size = spec, spec, (16, 16)
        count = int(spec.partition(":")[2] or 20)
        self.arrays = {"image": torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8)}
        self.groups = torch.arange(count) // 2
"""


def test_data_of_another_package_is_named_like_ours(tmp_path: Path) -> None:
    install(tmp_path, "stripes", {"manyview.sources": {"stripes": "stripesource:Stripes"}}, stripesource=SOURCE)
    out = tmp_path / "run"
    flags = [
        "--data",
        "stripes:24",
        "--batch-size",
        "4",
        "--max-steps",
        "1",
        "--backbone",
        "tiny",
        "--image-size",
        "16",
    ]
    done = run(tmp_path, "-m", "manyview", "pretrain", "simclr", *flags, "--out", str(out), "--contrast-every", "0")
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "config.json").read_text())["data"]["samples"] == 24


def test_a_method_of_another_package_is_a_command_like_ours(tmp_path: Path) -> None:
    install(tmp_path, "coolpackage", {"manyview.methods": {"cool": "coolmethod:Cool"}}, coolmethod=METHOD)
    out = tmp_path / "run"
    flags = [
        "--data",
        "scenes:64",
        "--batch-size",
        "8",
        "--max-steps",
        "2",
        "--temperature",
        "0.1",
        "--contrast-every",
        "0",
    ]
    done = run(tmp_path, "-m", "manyview", "pretrain", "cool", *flags, "--out", str(out))
    assert done.returncode == 0, done.stderr
    config = json.loads((out / "config.json").read_text())
    assert (config["method"], config["config"]["method"]["temperature"]) == ("cool", 0.1)
    listed = run(tmp_path, "-c", "from manyview.methods import described; print(described()['cool'])")
    assert listed.stdout == "Things of coolpackage\n"


def test_listing_methods_and_refusing_an_unknown_one_imports_none(tmp_path: Path) -> None:
    install(tmp_path, "coolpackage", {"manyview.methods": {"cool": "coolmethod:Cool"}}, coolmethod=METHOD)
    code = """
import sys
from manyview.errors import UserError
from manyview.methods import described, find
try:
    find("jlc")
except UserError as error:
    assert all(name in str(error) for name in ("no method 'jlc': choose one of", "jcl", "cool"))
assert described()["jcl"].startswith("Joint contrastive learning")
print([name for name in sys.modules if name == "torch" or name == "coolmethod" or name.startswith("manyview.methods.")])
find("jcl")
print([name for name in ("manyview.methods.jcl", "manyview.methods.cacr", "coolmethod") if name in sys.modules])
"""
    done = run(tmp_path, "-c", code)
    assert done.stdout.splitlines() == ["[]", "['manyview.methods.jcl']"], done.stderr


def test_what_does_not_load_is_said_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"broken": "brokenmodule:Thing", "absent": "thismoduleisabsent:Thing"}
    install(tmp_path, "brokenpackage", {"manyview.methods": broken}, brokenmodule="raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    entry_points.cache_clear()
    for name, reason in (("broken", "RuntimeError: no licence"), ("absent", "ModuleNotFoundError")):
        with pytest.raises(UserError) as caught:
            entry_points("manyview.methods")[name].load()
        assert "\n" not in str(caught.value)
        assert "the package brokenpackage registers" in str(caught.value)
        assert reason in str(caught.value)
    entry_points.cache_clear()


def test_two_packages_cannot_share_a_name_nor_take_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onepackage", "twopackage"):
        taken = {"cool": f"{package}module:Thing", "jcl": f"{package}module:Thing"}
        install(tmp_path, package, {"manyview.methods": taken})
    monkeypatch.syspath_prepend(tmp_path)
    entry_points.cache_clear()
    from manyview.methods import described, find

    with pytest.raises(UserError, match=r"'cool' is registered .* more than once \(onepackagemodule:Thing, twopack"):
        find("cool")
    assert find("jcl").__module__ == "manyview.methods.jcl"
    assert described()["jcl"].startswith("Joint contrastive")
    entry_points.cache_clear()


def test_a_registered_method_must_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "oddpackage", {"manyview.methods": {"odd": "oddmodule:Odd"}}, oddmodule="class Odd: ...")
    monkeypatch.syspath_prepend(tmp_path)
    entry_points.cache_clear()
    from manyview.methods import find

    with pytest.raises(UserError, match="registered as the method 'odd', but is no `Method` of that name"):
        find("odd")
    entry_points.cache_clear()


def test_a_class_is_described_by_its_docstring_or_that_of_its_config(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('class Plain:\n    """A plain one.\n\n    More."""\n    name = "plain"\n')
    (tmp_path / "two.py").write_text(
        'class C:\n    """By config."""\nclass Two:\n    name = "a"\n    Config = C\nclass Frame:\n    """None."""\n'
    )
    found = Registry[object]("nowhere", str(tmp_path), "manyview.protocols", "protocol.Protocol")
    assert found.described() == {"a": "By config.", "plain": "A plain one."}
    with pytest.raises(UserError, match="no protocol 'b': choose one of a, plain"):
        found.find("b")


PROTOCOL = '''
from dataclasses import dataclass

from manyview.evaluate.protocol import Protocol
from manyview.evaluate.result import Metric, Result


@dataclass(frozen=True)
class Width(Protocol):
    """How many features there are."""

    name = "width"
    title = "Width"
    factor: float = 1.0
    """What it is multiplied by."""

    def run(self, encoder, split, reading):
        width = Metric(self.factor * encoder.num_features, unit="")
        return Result({"features": width}, "features", {"seed": reading.seed})
'''


def test_a_protocol_of_another_package_is_a_command_like_ours(tmp_path: Path) -> None:
    install(tmp_path, "widepackage", {"manyview.protocols": {"width": "wide:Width"}}, wide=PROTOCOL)
    file = tmp_path / "run" / "encoder.safetensors"
    save_backbone(file, build_encoder(EncoderConfig(backbone="tiny")), image_size=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    words = ("evaluate", "width", str(file.parent), "--data", "scenes:64", "--factor", "2", "--no-random")
    done = run(tmp_path, "-m", "manyview", *words)
    assert done.returncode == 0, done.stderr
    assert "width factor=2" in done.stdout
    [record] = json.loads((file.parent / "evaluations.json").read_text())
    assert (record["settings"], record["headline"]) == ({"factor": 2.0}, "features")
    assert record["metrics"]["features"] == {"value": 512.0, "interval": None, "unit": ""}
