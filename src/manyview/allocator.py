"""The C library's habit of giving memory back to the system, which slows down a training on the CPU."""

import ctypes
import sys

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Blocks that are freed stay with the process, for the next step, which asks for the same ones.

    glibc maps every tensor of more than 32 MiB anew and unmaps it at its end, so that in each step the system has to
    fill all of its pages with zeros. Other C libraries are left as they are.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if adjust is not None:
        adjust(_MMAP_MAX, 0)
        adjust(_TRIM_THRESHOLD, -1)  # never
