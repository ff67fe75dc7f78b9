"""What README, CONTRIBUTING and the list of features say of methods and files is so."""

import json
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from PIL import Image
from test_registry import install
from test_registry import run as run_with

import manyview
from manyview.data.loader import Loader
from manyview.methods import described, find
from manyview.run.build import build
from manyview.run.flags import parse_run
from manyview.train import train

ROOT, SOURCES = Path(__file__).parents[1], Path(manyview.__file__).parent
README, CONTRIBUTING = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))


def test_the_table_of_methods_names_every_command_once_and_no_other() -> None:
    table = README.split("## Methods\n", 1)[1].strip().split("\n\n", 1)[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    commands = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(commands) == sorted(described())


def test_the_list_of_features_names_files_that_exist() -> None:
    features = (ROOT / "docs/FEATURES.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+/[\w/]*(?:\.\w+)?)`", features))
    assert len(named) > 40
    missing = [path for path in named if not any((top / path).exists() for top in (ROOT, SOURCES))]
    assert missing == []


def reading() -> tuple[list[str], set[str]]:
    """The files that are to be read in order, and those with the operations that they call."""
    section = CONTRIBUTING.split("from disk to the optimizer step", 1)[1]
    listed, rest = section.split("They call single operations", 1)
    main = re.findall(r"^\d\. `([\w/]+\.py)`", listed, re.MULTILINE)
    return main, set(re.findall(r"`([a-z_]+(?:/[a-z_]+)?\.py)`", rest.split("`tests/", 1)[0]))


def test_the_files_from_disk_to_the_optimizer_are_nine_and_exist() -> None:
    main, operations = reading()
    assert len(set(main)) == len(main) <= 9
    assert not operations & set(main)
    assert all((SOURCES / path).is_file() for path in (*main, *operations))


@pytest.mark.parametrize("preset", ["small", "paper"])
def test_a_step_of_jcl_runs_through_the_listed_files_and_no_other(preset: str, tmp_path: Path) -> None:
    folder, generator = tmp_path / "photos", torch.Generator().manual_seed(0)
    folder.mkdir()
    for number in range(24):
        pixels = torch.randint(0, 256, (40 + number, 60 - number, 3), dtype=torch.uint8, generator=generator)
        Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")
    small = ["--backbone", "tiny", "--image-size", "32", "--queue-size", "16", "--batch-size", "8", "--preset", preset]
    kind = find("jcl")
    config, source, *_ = parse_run(
        kind, ["--data", str(folder), "--out", str(tmp_path / "run"), "--max-steps", "1", *small]
    )
    parts = build(kind, config, source)
    loader = Loader(source, batch_size=8, seed=0, stop=1, crop=parts.augment.crop)
    steps = train(
        parts.method, loader, parts.augment, parts.optimizer, parts.schedule, steps=1, device=torch.device("cpu")
    )
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{SOURCES}/"):
            seen.add(str(Path(frame.f_code.co_filename).relative_to(SOURCES)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert len(list(steps)) == 1
    finally:
        sys.setprofile(before)
    main, operations = reading()
    assert set(main) <= seen
    assert seen <= {*main, *operations}


def test_the_example_of_a_method_runs_from_a_package_of_its_own(tmp_path: Path) -> None:
    section = CONTRIBUTING.split("## Add a method", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (entry,) = re.findall(r'^farthest = "mypackage\.(farthest:\w+)"$', section, re.MULTILINE)
    assert len(code.splitlines()) <= 60
    install(tmp_path, "mypackage", {"manyview.methods": {"farthest": entry}}, farthest=code)
    words = ["-m", "manyview", "pretrain", "farthest", "--data", "scenes:64", "--batch-size", "8", "--max-steps", "2"]
    done = run_with(tmp_path, *words, "--keys", "2", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["method"]["keys"] == 2
    done = run_with(tmp_path, *words, "--keys", "0", "--out", str(tmp_path / "other"))
    assert "--keys 0 must be greater than 0" in done.stderr
