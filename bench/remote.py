"""`python -m bench.remote`: a side in a process of its own, which takes a turn for each line that it is sent.

Sides that live in one process share its memory and its threads' habits: what suits one (see `bench.training`) slows the
other.
"""

import importlib
import json
import os
import subprocess
import sys
from typing import Any

from bench.profiles import operators
from bench.race import Side, threads


class Remote:
    """The side that the function `maker` of `module` makes of its JSON-able `settings`."""

    def __init__(self, module: str, maker: str, settings: dict[str, Any], *, threads: int, wait_policy: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.remote", module, maker, json.dumps(settings), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_WAIT_POLICY": wait_policy},
        )

    def __call__(self) -> float:
        return float(self._ask("turn"))

    def operators(self) -> dict[str, Any]:
        """See `bench.profiles`."""
        found: dict[str, Any] = self._ask("profile")
        return found

    def close(self) -> None:
        self.process.communicate()

    def _ask(self, what: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main() -> None:
    module, maker, settings, count = sys.argv[1:]
    with threads(int(count)):
        side: Side = getattr(importlib.import_module(module), maker)(**json.loads(settings))
        for line in sys.stdin:
            print(json.dumps(operators(side) if line.strip() == "profile" else side()), flush=True)


if __name__ == "__main__":
    main()
