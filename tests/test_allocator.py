"""What a step frees the next one gets back, without the system in between."""

import platform
import subprocess
import sys

import pytest

from manyview.cli import main

MEBIBYTES = 64
SETTLED, TURNS = 10, 20  # malloc keeps the odd ends of its first few blocks aside
PROGRAM = f"""
import resource, sys
import torch
from manyview.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
faults = []
for turn in range({TURNS}):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones({MEBIBYTES} << 18)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sum(faults[{SETTLED}:]))
"""


def test_commands_keep_what_they_free(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr("manyview.cli.keep_freed_memory", lambda: called.append("kept"))
    assert main(["--version"]) == 0
    assert called == ["kept"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_freed_memory_is_used_again() -> None:
    def faults(habit: str) -> int:
        return int(subprocess.run([sys.executable, "-c", PROGRAM, habit], capture_output=True, check=True).stdout)

    again, kept = faults("give back"), faults("keep")
    assert again > 20 * (TURNS - SETTLED)  # large pages or small, each is asked for in every turn
    assert kept < 0.05 * again
