"""What a command does not need is not imported: seconds differ between machines, modules do not."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from manyview.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("\\n", *sys.modules)
"""
SLOW = {"matplotlib", "scipy", "sklearn", "tensorboard", "timm", "torchvision"}


def imported(*words: str) -> set[str]:
    """The top-level modules that are there after a command."""
    output = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, check=True, text=True).stdout
    return {name.partition(".")[0] for name in output.splitlines()[-1].split()}


@pytest.mark.parametrize(
    "words",
    [
        *(["--version"], ["--help"], ["nonsense"]),
        *([command, word] for command in ("pretrain", "evaluate") for word in ("--help", "nonsense")),
    ],
)
def test_what_explains_itself_imports_no_torch(words: list[str]) -> None:
    found = imported(*words)
    assert not found & {"torch", "numpy", *SLOW}


def test_the_package_imports_its_rooms_when_they_are_used() -> None:
    program = "import sys, manyview; dir(manyview); print(*sys.modules); manyview.objectives.jcl; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    before, after = (set(line.split()) for line in output.splitlines())
    assert "torch" not in before
    assert {"torch", "manyview.objectives"} <= after
    assert not after & {"timm", "manyview.encoders"}


@pytest.mark.parametrize("command", ["resume", "embed", "export", "report", "diagnose", "views", "pack", "reproduce"])
def test_the_flags_of_a_command_import_no_torch(command: str) -> None:
    assert not imported(command, "--help") & {"torch", "numpy", *SLOW}


@pytest.mark.parametrize("words", [["pretrain", "jcl"], ["evaluate", "knn"], ["evaluate", "linear-sgd"]])
def test_the_flags_of_a_method_or_protocol_import_torch_and_nothing_slower(words: list[str]) -> None:
    found = imported(*words, "--help")
    assert "torch" in found
    assert not found & SLOW
