"""Signals that end a run after a whole step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted, so that the current step can be finished and saved."""
    pending: list[int] = []
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, lambda number, _: pending.append(number)) for kind in kinds}
    try:
        yield pending
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
