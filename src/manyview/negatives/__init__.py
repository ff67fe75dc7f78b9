"""Where negatives come from. A source gives `similarity(query, …) -> (N, K)`, masking (-inf) what must not be a
negative, and takes `push(keys)` after the scoring, so that a sample is never its own negative."""

from manyview.negatives.bank import MemoryBank
from manyview.negatives.in_batch import InBatch
from manyview.negatives.queue import Queue

__all__ = ["InBatch", "MemoryBank", "Queue"]
