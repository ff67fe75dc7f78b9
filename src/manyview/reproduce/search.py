"""A recorded search: the same draws from the same choices for all that are compared."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from manyview import counter
from manyview.reproduce.store import Store
from manyview.reproduce.training import Training

__all__ = ["Space", "best"]

_TAG = 0x5EA2C4  # keeps these draws apart from everybody else's


@dataclass(frozen=True)
class Space:
    """Values to choose from, by flag; the first of each are those of trial 0."""

    choices: Mapping[str, tuple[str, ...]]

    def draw(self, trial: int) -> dict[str, str]:
        """Each flag on its own, so that one more flag leaves the draws of the others as they are."""
        if trial == 0:
            return {flag: values[0] for flag, values in self.choices.items()}
        drawn = {}
        for flag, values in self.choices.items():
            word = int.from_bytes(hashlib.blake2b(flag.encode(), digest_size=6).digest())
            drawn[flag] = values[int(counter.bits(_TAG, word, trial) % len(values))]
        return drawn


def best(trials: Sequence[Training], store: Store) -> Training | None:
    """The one with the best linear accuracy, the first of equals, once all have been tried."""
    found = [store.rows_of(trial) for trial in trials]
    if not all(found):
        return None
    scores = [float(rows[0]["linear"]) for rows in found]
    return trials[scores.index(max(scores))]
