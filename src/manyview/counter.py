"""Random numbers without a random state: every draw is a hash of integers that say which draw it is.

A stateful generator gives a sample other numbers whenever the batch, the workers, the ranks or a resume change.
Here the words (seed, epoch, sample, view, draw) go in and the number comes out, on any device, in any order.
"""

import math

import torch
from torch import Tensor

Word = int | Tensor


def _signed(value: int) -> int:
    """`value` modulo 2^64 as the int64 that holds the same bits."""
    return (value + 2**63) % 2**64 - 2**63


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shift(x: Tensor, places: int) -> Tensor:
    """Logical right shift: torch's `>>` on int64 would drag the sign bit along."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64: every input bit reaches every output bit. int64 products wrap, as it needs."""
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def bits(*words: Word) -> Tensor:
    """64 random bits (as int64) per element of the broadcast words.

    Words are absorbed from left to right, so put the scalar and small ones first: the work grows with the shape.
    """
    state = torch.zeros((), dtype=torch.int64)
    for word in words:
        if isinstance(word, Tensor):
            state = _mix(state.to(word.device) + word.long() + _GOLDEN)
        else:
            state = _mix(state + _signed(word + _GOLDEN))
    return state


def uniform(*words: Word) -> Tensor:
    """float32 in [0, 1), a multiple of 2^-24, the same on every device."""
    return _shift(bits(*words), 40).float() * 2.0**-24


def normal(*words: Word) -> Tensor:
    """Standard normal float32 numbers (Box-Muller on the two halves of the hash)."""
    state = bits(*words)
    # The half step keeps the logarithm away from 0.
    radius = torch.sqrt(-2 * torch.log((_shift(state, 40).float() + 0.5) * 2.0**-24))
    return radius * torch.cos((state & 0xFFFFFF).float() * (2 * math.pi * 2.0**-24))


def permutation(n: int, *words: int) -> Tensor:
    """A random order of range(n) that is a function of the words alone."""
    return torch.argsort(bits(*words, torch.arange(n)), stable=True)
