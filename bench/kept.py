"""The objectives again, where freed memory is kept as by every command: then no side waits for pages of zeros.

The last group, as a process cannot go back.
"""

from collections.abc import Iterator
from dataclasses import replace

from bench.lines import CACR_OBJECTIVE_KEPT, JCL_OBJECTIVE_KEPT, OBJECTIVE_QUEUE
from bench.objective import objective, with_a_queue
from bench.race import Race
from manyview.allocator import keep_freed_memory


def races(quick: bool) -> Iterator[Race]:
    keep_freed_memory()
    queue = 4096 if quick else OBJECTIVE_QUEUE
    yield replace(objective(queue, quick), lines=(JCL_OBJECTIVE_KEPT,), allocates={})
    yield replace(with_a_queue(queue, quick), lines=(CACR_OBJECTIVE_KEPT,), allocates={})
