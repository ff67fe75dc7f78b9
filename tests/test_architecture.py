"""Imports point one way, and what is public is what is meant to be."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import manyview

ROOT = Path(manyview.__file__).parent
LEAVES = {"allocator", "atomic", "counter", "errors", "precision", "stack"}
FOUNDATION = {"objectives", "views", "encoders", "data", "distributed", "checkpoint", "run_files"}
# What each room may import besides itself and the leaves; rooms not named may import anything but cli.
ALLOWED: dict[str, set[str]] = {
    **{room: set() for room in LEAVES | FOUNDATION},
    "encoders": {"distributed", "run_files", "views"},  # keys are shuffled across ranks; some see colours apart
    "negatives": {"distributed", "objectives"},
    "config": {"encoders"},
    "methods": FOUNDATION | {"negatives", "config"},
    "train": FOUNDATION | {"config", "methods"},
    "evaluate": FOUNDATION,
    "diagnose": FOUNDATION,
    "report": FOUNDATION | {"evaluate", "diagnose", "methods"},  # a method knows what its loss means
}


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things come from"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {name.split(".")[1] for name in names if name.startswith("manyview.")}
    return {name for name in ours if (ROOT / name).exists() or (ROOT / f"{name}.py").exists()}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    used = imported_rooms(path) - {here} - (LEAVES if here not in LEAVES else set())
    if here in ALLOWED:
        assert used <= ALLOWED[here]
    elif here != "__main__":
        assert "cli" not in used


@pytest.mark.parametrize("path", [p for p in files() if room(p) == "train"])
def test_the_loop_names_no_method(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert all(module == "manyview.methods.base" for module in modules if module and "methods" in module)


def test_only_one_file_names_torch_distributed() -> None:
    naming = [path.name for path in files() if "torch.distributed" in path.read_text(encoding="utf-8")]
    assert naming == ["distributed.py"]


def modules() -> list[str]:
    found = pkgutil.walk_packages(manyview.__path__, "manyview.")
    return [module.name for module in found if not module.name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_every_module_says_what_is_public(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, "a module says what it is for"
    for public in module.__all__:
        assert hasattr(module, public)


def test_the_documented_names_are_importable() -> None:
    from manyview.negatives import InBatch, MemoryBank, Queue
    from manyview.objectives import cacr, info_nce, jcl, multiview, nce, nt_xent, similarity

    sources, objectives = (InBatch, MemoryBank, Queue), (cacr, info_nce, jcl, multiview, nce, nt_xent, similarity)
    assert all(callable(each) for each in (*sources, *objectives, manyview.load))
    assert set(manyview.__all__) == {"__version__", "load"}
