"""Imports point one way, and what is public is what is meant to be."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import manyview

ROOT = Path(manyview.__file__).parent
# For everyone:
LEAVES = {
    "allocator",
    "atomic",
    "bounds",
    "counter",
    "errors",
    "precision",
    "registry",
    "run.files",
    "fields",
    "pixels",
}
SENSES = {"objectives", "views", "encoders", "data", "distributed"}
METHODS = SENSES | {"config", "methods", "negatives"}
READERS = {"evaluate", "diagnose", "report"}  # of runs
# What each room may import besides itself and the leaves: every room stands here.
ALLOWED: dict[str, set[str]] = {
    **{room: set() for room in LEAVES},
    "arguments": set(),
    "distributed": set(),
    "objectives": set(),
    "views": set(),
    "data": set(),
    "encoders": {"distributed", "views"},  # keys are shuffled across ranks; some see colours apart
    "negatives": {"distributed", "objectives"},
    "config": {"encoders"},
    "methods": METHODS,
    "train": METHODS,
    "evaluate": SENSES,
    "diagnose": METHODS | {"evaluate"},  # a method knows what its loss means
    "report": METHODS | READERS,
    "export": METHODS | READERS,  # a model card says how a run was evaluated
    "run": METHODS | READERS | {"arguments", "train"},
    "cost": METHODS | {"train", "run"},
    "reproduce": METHODS | READERS | {"train", "run", "cost"},
    "cli": METHODS | READERS | {"arguments", "train", "run", "cost", "reproduce", "export"},
    "__main__": {"cli"},
    "__init__": {"data", "encoders", "evaluate", "methods", "negatives", "objectives", "views"},
}


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts) if ".".join(parts) in LEAVES else parts[0]


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things come from"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {name.removeprefix("manyview.") for name in names if name.startswith("manyview.")}
    found = {next((leaf for leaf in LEAVES if f"{name}.".startswith(f"{leaf}.")), name.split(".")[0]) for name in ours}
    return {name for name in found if (ROOT / name.replace(".", "/")).exists() or name in LEAVES | ALLOWED.keys()}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    used = imported_rooms(path) - {here} - (LEAVES if here not in LEAVES else {"errors"})
    assert used <= ALLOWED[here]


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
def test_every_module_says_what_it_is_for_and_every_room_what_is_public(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, "a module says what it is for"
    if hasattr(module, "__path__"):  # in the files of a room all names without an underscore are for the library
        assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_private_name_stays_in_its_file(path: Path) -> None:
    imports = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    taken = [alias.name for node in imports if (node.module or "").startswith("manyview") for alias in node.names]
    assert [name for name in taken if name.startswith("_") and not name.startswith("__")] == []


def test_the_documented_names_are_importable() -> None:
    from manyview.negatives import InBatch, MemoryBank, Queue
    from manyview.objectives import cacr, info_nce, jcl, multiview, nce, nt_xent, similarity

    sources, objectives = (InBatch, MemoryBank, Queue), (cacr, info_nce, jcl, multiview, nce, nt_xent, similarity)
    assert all(callable(each) for each in (*sources, *objectives, manyview.load))
    assert dir(manyview) == sorted(manyview.__all__)
    rooms = [name for name in manyview.__all__ if name not in ("__version__", "load")]
    assert all(getattr(manyview, room).__all__ for room in rooms)
    assert all(f"manyview.{name}" in str(manyview.__doc__) for name in ("load", *rooms))
