"""Colour: operations on x (c, B, P), B views of P pixels in 0 … 255, c planes each in one piece; mostly RGB."""

import itertools
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from manyview.views.plan import JITTER, ORDERS, Plan

_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)  # numbers in JITTER
_BLENDS = {_BRIGHTNESS, _CONTRAST, _SATURATION}
_LUMA = torch.tensor([0.2989, 0.587, 0.114])  # ITU-R 601, to torchvision's digits
_HALF = torch.tensor(0.5)


class Jitter(NamedTuple):
    """The colour jitter of S views, sorted by the turn of their hue: so an operation works on stretches of memory,
    although every view has its own order. Lists decide the course of the work, tensors are on its device."""

    hue_turn: list[int]  # which of a view's four operations is the hue; 4 if there is no jitter
    kinds: list[list[int]]  # (S, 4) the operations in the view's order, as numbers in `JITTER`
    parameter: Tensor  # (S, 4, 1) like `kinds`
    rest: Tensor  # (S, 4, 1) 1 − parameter
    contrast: Tensor  # (S, 4, 1) 1 where that is the kind, else 0
    saturation: Tensor

    @staticmethod
    def rank(plan: Plan) -> Tensor:
        """What views (S,) are to be sorted by."""
        return torch.where(plan.jitter, (ORDERS[plan.order] == _HUE).long().argmax(-1), len(JITTER))

    @classmethod
    def of(cls, plan: Plan, device: torch.device) -> "Jitter":
        """What a flat plan (S,) asks for."""
        kinds = ORDERS[plan.order]
        parameter = torch.stack([getattr(plan, name) for name in JITTER], -1).gather(-1, kinds)
        columns = (parameter, 1 - parameter, (kinds == _CONTRAST).float(), (kinds == _SATURATION).float())
        return cls(cls.rank(plan).tolist(), kinds.tolist(), *(column.unsqueeze(-1).to(device) for column in columns))

    def part(self, run: slice) -> "Jitter":
        return Jitter._make(field[run] for field in self)

    def apply(self, x: Tensor, turn_hue: Callable[[Tensor, Tensor], None], *, alone: bool) -> None:
        """The four operations in each view's own order. A view `alone` skips operations it does not need. Several views
        run them all, so that the bits of one never depend on which others are in its batch."""
        edges = [bisect_left(self.hue_turn, turn) for turn in range(len(JITTER) + 1)]
        for turn in range(len(JITTER)):
            columns = (self.parameter, self.rest, self.contrast, self.saturation)
            hue = slice(edges[turn], edges[turn + 1])
            for run in (slice(0, hue.start), slice(hue.stop, edges[len(JITTER)])):
                if run.start < run.stop:
                    kinds = {self.kinds[0][turn]} if alone else _BLENDS
                    factor, rest, contrast, saturation = (column[run, turn] for column in columns)
                    _blend(x[:, run], factor, rest, contrast, saturation, kinds)
            if hue.start < hue.stop and len(x) == len(_LUMA):
                turn_hue(x[:, hue], self.parameter[hue, turn])


def _luma(x: Tensor) -> Tensor:
    """(c, B, P) -> (B, P); the mean of channels that are not RGB."""
    weights = _LUMA if len(x) == len(_LUMA) else torch.full((len(x),), 1 / len(x))
    return (weights.to(x.device) @ x.flatten(1)).view(x.shape[1:])


def _blend(x: Tensor, factor: Tensor, rest: Tensor, contrast: Tensor, saturation: Tensor, kinds: set[int]) -> None:
    """Away from the mean grey where `contrast` is 1, from each pixel's grey where `saturation` is, else from black.

    `kinds` are those that may occur, so that a view alone costs no more than its own operation; `rest` is 1 − factor.
    """
    if _SATURATION in kinds:
        grey = _luma(x)
        if len(kinds) > 1:
            mean = grey.mean(-1, keepdim=True)
            grey.mul_(saturation).add_(mean.mul_(contrast))
        x.lerp_(grey, rest)
    else:
        offset = _luma(x.mean(-1, keepdim=True)).mul_(rest).mul_(contrast) if _CONTRAST in kinds else None
        x.mul_(factor)
        if offset is not None:
            x.add_(offset)
    x.clamp_(0, 255)


def hue(x: Tensor, turn: Tensor) -> None:
    """Turn the hue of HSV by a share of the colour circle, without a branch: selecting would cost more than computing.

    In units of the chroma, let e be how far red is below the highest primary, and d = green − blue. Then the way
    from red to the colour along the circle is d/6 + e (sign(d)/2 − d/3).
    """
    red, green, blue = x
    low = torch.minimum(red, green)
    torch.minimum(low, blue, out=low)
    high = torch.maximum(red, green)
    torch.maximum(high, blue, out=high)
    # The planes are overwritten at each step: with more temporaries a view would not stay in the cache.
    below, across, way = torch.sub(high, red, out=red), torch.sub(green, blue, out=green), blue
    chroma = high.sub_(low).clamp_min_(1e-12)
    below.div_(chroma)
    across.div_(chroma)
    # The sign by a steep clamp, faster than copysign. Where it matters, `across` is 0 or beyond ±6e-8.
    torch.add(_HALF.to(x.device), across, alpha=1e9, out=way).clamp_(-0.5, 0.5).sub_(across, alpha=1 / 3)
    torch.add(turn + 1, across, alpha=1 / 6, out=across)
    torch.addcmul(across, below, way, out=way).frac_()
    # A primary is at its highest up to 1/6 of the circle away and at its lowest from 2/6 on. Red lies at both
    # ends of the unrolled circle, so its distance is taken from cyan.
    for plane, opposite in ((red, 1 / 2), (green, 1 / 3), (blue, 2 / 3)):
        torch.sub(way, opposite, out=plane).abs_().clamp_(1 / 6, 1 / 3)
    torch.addcmul(low.sub_(chroma), chroma, red, value=6, out=red)
    low.add_(chroma, alpha=3)
    for plane in (green, blue):
        torch.addcmul(low, chroma, plane, value=-6, out=plane)


@cache
def compiled_hue() -> Callable[[Tensor, Tensor], None]:
    """`hue` in plain operations, as torch.compile fuses them best. Compiled once for all sizes."""

    def turned(x: Tensor, turn: Tensor) -> Tensor:
        red, green, blue = x
        low, high = x.amin(0), x.amax(0)
        chroma = (high - low).clamp_min(1e-12)
        below, across = (high - red) / chroma, (green - blue) / chroma
        way = (turn + 1 + across / 6 + below * (torch.full_like(across, 0.5).copysign(across) - across / 3)).frac()
        red, green, blue = (6 * chroma * (way - at).abs().clamp(1 / 6, 1 / 3) for at in (1 / 2, 1 / 3, 2 / 3))
        return torch.stack((low - chroma + red, low + 2 * chroma - green, low + 2 * chroma - blue))

    compiled = torch.compile(turned, dynamic=True)

    def turn_hue(x: Tensor, turn: Tensor) -> None:
        x.copy_(compiled(x, turn))

    return turn_hue


def solarise(x: Tensor, threshold: float) -> Tensor:
    """Invert what is at least as bright as the threshold."""
    bright = x.clone().ge_(255 * threshold)
    return x.addcmul_(bright, torch.rsub(x, 255, alpha=2))


def where(chosen: list[bool], x: Tensor, operation: Callable[[Tensor], Tensor]) -> Tensor:
    """x (3, B, …) with the chosen (B,) views replaced by what the operation makes of them."""
    numbers = list(itertools.compress(itertools.count(), chosen))
    if len(numbers) == 0:
        return x
    if len(numbers) == len(chosen):
        return operation(x)
    index = torch.tensor(numbers, device=x.device)
    return x.index_copy_(1, index, operation(x.index_select(1, index)))


def greyscale(x: Tensor, chosen: list[bool]) -> Tensor:
    return where(chosen, x, lambda part: part.copy_(_luma(part)))
