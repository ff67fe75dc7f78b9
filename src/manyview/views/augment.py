"""How one image becomes V views: random resized crop, flip, colour jitter, greyscale, blur, solarise, normalise.

Every random number is a hash of (seed, epoch, sample, view, draw), so a sample's views are the same in any batch,
worker or rank. All views of a batch are made together. Crop, flip and blur are separable and linear, so each is a
product A X B with small matrices. Colours are three planes (3, B, …), each in one piece; B counts views, of whatever
samples.
"""

import itertools
import math
import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview import counter
from manyview.views.recipes import Recipe

__all__ = ["JITTER", "ORDERS", "Augment", "Plan"]

JITTER = ("brightness", "contrast", "saturation", "hue")
ORDERS = torch.tensor(list(itertools.permutations(range(len(JITTER)))))  # (24, 4) of numbers in JITTER
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)  # numbers in JITTER
_BLENDS = {_BRIGHTNESS, _CONTRAST, _SATURATION}

_TAG = 0x7669657773  # "views": keeps these draws apart from everybody else's
_TRIES = 10  # crops are drawn until one fits, as often as torchvision draws them
_DRAWS = (_TRIES, _TRIES, 2, 11)  # area, ratio, position, and one each for the rest; new ones go to the end
_LUMA = torch.tensor([0.2989, 0.587, 0.114])  # ITU-R 601, to torchvision's digits
_HALF = torch.tensor(0.5)
# Up to _DENSE pixels a blur is one matrix; beyond it skips the zeros far from the diagonal, _BAND rows at a time.
_DENSE, _BAND = 112, 48
# Pixels worked on at once: few enough for the planes to stay in the cache, many enough for the calls not to count.
# From _ALONE on a view is worked on by itself, and then skips the operations that it does not need.
_CPU_CHUNK, _GPU_CHUNK, _ALONE = 1 << 18, 1 << 25, 1 << 15
_LARGE = 1 << 24  # bytes


class Plan(NamedTuple):
    """The random parameters of views: leading shape (N, V), independent of the images' sizes."""

    area: Tensor  # (N, V, tries) share of the image's area
    ratio: Tensor  # (N, V, tries) logarithm of width over height
    position: Tensor  # (N, V, 2) of the crop in the room that is left: 0 is top or left, 1 is bottom or right
    flip: Tensor
    jitter: Tensor
    order: Tensor  # of the jitter's operations, as a number in `ORDERS`
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    hue: Tensor
    grey: Tensor
    blur: Tensor
    sigma: Tensor
    solarise: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "Plan":
        return Plan(*map(function, self))


# Colour: operations on x (3, B, P) in 0 … 255, in place, with one parameter for each view (B, 1).


def _luma(x: Tensor) -> Tensor:
    """(3, B, P) -> (B, P)"""
    return (_LUMA.to(x.device) @ x.flatten(1)).view(x.shape[1:])


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


def _hue(x: Tensor, turn: Tensor) -> None:
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
def _compiled_hue() -> Callable[[Tensor, Tensor], None]:
    """`_hue` in plain operations, as torch.compile fuses them best. Compiled once for all sizes."""

    def turned(x: Tensor, turn: Tensor) -> Tensor:
        red, green, blue = x
        low, high = x.amin(0), x.amax(0)
        chroma = (high - low).clamp_min(1e-12)
        below, across = (high - red) / chroma, (green - blue) / chroma
        way = (turn + 1 + across / 6 + below * (torch.full_like(across, 0.5).copysign(across) - across / 3)).frac()
        red, green, blue = (6 * chroma * (way - at).abs().clamp(1 / 6, 1 / 3) for at in (1 / 2, 1 / 3, 2 / 3))
        return torch.stack((low - chroma + red, low + 2 * chroma - green, low + 2 * chroma - blue))

    compiled = torch.compile(turned, dynamic=True)

    def hue(x: Tensor, turn: Tensor) -> None:
        x.copy_(compiled(x, turn))

    return hue


def _solarise(x: Tensor, threshold: float) -> Tensor:
    """Invert what is at least as bright as the threshold."""
    bright = x.clone().ge_(255 * threshold)
    return x.addcmul_(bright, torch.rsub(x, 255, alpha=2))


def _where(chosen: list[bool], x: Tensor, operation: Callable[[Tensor], Tensor]) -> Tensor:
    """x (3, B, …) with the chosen (B,) views replaced by what the operation makes of them."""
    numbers = list(itertools.compress(itertools.count(), chosen))
    if len(numbers) == 0:
        return x
    if len(numbers) == len(chosen):
        return operation(x)
    index = torch.tensor(numbers, device=x.device)
    return x.index_copy_(1, index, operation(x.index_select(1, index)))


def _greyscale(x: Tensor, chosen: list[bool]) -> Tensor:
    return _where(chosen, x, lambda part: part.copy_(_luma(part)))


class _Script(NamedTuple):
    """What is done to S views: lists of what decides the course of the work, tensors on the device of the rest."""

    flip: list[bool]
    hue_turn: list[int]  # which of a view's four jitter operations is the hue; 4 if there is no jitter
    kinds: list[list[int]]  # (S, 4) the jitter's operations in the view's order, as numbers in `JITTER`
    grey: list[bool]
    blur: list[bool]
    solarise: list[bool]
    parameter: Tensor  # (S, 4, 1) of the jitter, like `kinds`
    rest: Tensor  # (S, 4, 1) 1 − parameter
    contrast: Tensor  # (S, 4, 1) 1 where that is the kind, else 0
    saturation: Tensor
    sigma: Tensor

    def part(self, run: slice) -> "_Script":
        return _Script._make(field[run] for field in self)


def _script(plan: Plan, device: torch.device) -> _Script:
    """What a flat plan (S,) asks for."""
    kinds = ORDERS[plan.order]
    parameter = torch.stack([getattr(plan, name) for name in JITTER], -1).gather(-1, kinds)
    columns = (parameter, 1 - parameter, (kinds == _CONTRAST).float(), (kinds == _SATURATION).float())
    lists = (plan.flip, _hue_turn(plan), kinds, plan.grey, plan.blur, plan.solarise)
    tensors = (*(column.unsqueeze(-1) for column in columns), plan.sigma)
    return _Script._make((*(field.tolist() for field in lists), *(field.to(device) for field in tensors)))


def _hue_turn(plan: Plan) -> Tensor:
    return torch.where(plan.jitter, (ORDERS[plan.order] == _HUE).long().argmax(-1), len(JITTER))


def _grouped(plan: Plan, chunk: int) -> Iterator[Tensor]:
    """The numbers of a flat plan's views, in pieces to be worked on at once.

    A piece is blurred as a whole or not at all, and its views are sorted by the turn of their hue. Then an operation
    works on stretches of memory, although every view has its own order.
    """
    turn = _hue_turn(plan)
    for blurred in (False, True):
        chosen = (plan.blur == blurred).nonzero().squeeze(1)
        if len(chosen):
            yield from chosen[turn[chosen].argsort(stable=True)].tensor_split(math.ceil(len(chosen) / chunk))


def _jitter(x: Tensor, script: _Script, turn_hue: Callable[[Tensor, Tensor], None]) -> None:
    """The four operations in each view's own order; the views are sorted by the turn of their hue."""
    edges = [bisect_left(script.hue_turn, turn) for turn in range(len(JITTER) + 1)]
    # Together views take the way of any kind, whichever they are: their last bits must not depend on their company.
    alone = x.shape[1] == 1 and x.shape[2] >= _ALONE
    for turn in range(len(JITTER)):
        columns = (script.parameter, script.rest, script.contrast, script.saturation)
        hue = slice(edges[turn], edges[turn + 1])
        for run in (slice(0, hue.start), slice(hue.stop, edges[len(JITTER)])):
            if run.start < run.stop:
                kinds = {script.kinds[0][turn]} if alone else _BLENDS
                factor, rest, contrast, saturation = (column[run, turn] for column in columns)
                _blend(x[:, run], factor, rest, contrast, saturation, kinds)
        if hue.start < hue.stop:
            turn_hue(x[:, hue], script.parameter[hue, turn])


# Space: matrices for crop and blur


def _sandwich(left: Tensor, x: Tensor, right: Tensor) -> Tensor:
    """A X B for each view and colour: (B, h, H), (3, B, H, W), (B, W, w) -> (3, B, h, w)."""
    out = x.new_empty(*x.shape[:2], left.shape[1], right.shape[2])
    for plane, result in zip(x, out, strict=True):
        torch.bmm(torch.bmm(left, plane), right, out=result)
    return out


def _resize_matrix(
    start: Tensor, length: Tensor, source: int, size: int, *, dim: int, flip: Tensor | None = None
) -> Tensor:
    """Resize the stretches [start, start + length) of lines of `source` pixels to `size`, bilinear and antialiased.

    An output pixel weighs the input by a triangle as wide to each side as the reduction, at least one pixel. The
    matrices have the input along `dim`: (B, source, size) for 1, (B, size, source) for 2.
    """
    start, length = start.view(-1, 1, 1).float(), length.view(-1, 1, 1).float()
    scale = length / size
    reach = scale.clamp_min(1)
    # Both are counted from the middle of the stretch, so that a flip is a change of sign.
    tap = torch.arange(source, device=start.device).unsqueeze(2 - dim) - (start + (length - 1) / 2)
    pixel = torch.arange(size, device=start.device).unsqueeze(dim - 1) - (size - 1) / 2
    if flip is not None:
        scale = scale * torch.where(flip, -1, 1).view(-1, 1, 1)
    weight = torch.sub(tap / reach, pixel * (scale / reach)).abs_()
    inside = (tap.abs() < length / 2).float()
    torch.sub(inside, weight, out=weight).clamp_min_(0)
    return weight.div_(weight.sum(dim, keepdim=True))


def _resize(x: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    """Cut at boxes (B, 4): (3, B, H, W) -> (3, B, size, size)."""
    top, left, height, width = boxes.unbind(-1)
    rows = _resize_matrix(top, height, x.shape[-2], size, dim=2)
    columns = _resize_matrix(left, width, x.shape[-1], size, dim=1, flip=flip)
    return _sandwich(rows, x, columns)


class _Blur:
    """The blur of lines of `size` pixels with reflected ends, as bands of a matrix.

    A band is some rows of the matrix, without the columns beyond their reach, where it is zero.
    """

    def __init__(self, size: int, radius: int) -> None:
        line = torch.arange(size)
        basis = torch.zeros(radius + 1, size, size)
        for offset in range(-radius, radius + 1):
            reflected = (line + offset).abs()
            basis[abs(offset), line, torch.minimum(reflected, 2 * (size - 1) - reflected)] += 1
        step = size if size <= _DENSE else _BAND
        self.rows = [slice(start, min(start + step, size)) for start in range(0, size, step)]
        self.reach = [slice(max(0, rows.start - radius), min(rows.stop + radius, size)) for rows in self.rows]
        # (radius + 1, all bands in one line): weighted by a kernel's taps it sums to the bands
        self.basis = torch.cat([basis[:, r, c].flatten(1) for r, c in zip(self.rows, self.reach, strict=True)], 1)

    def bands(self, sigma: Tensor) -> list[tuple[slice, slice, Tensor]]:
        """Rows, reach and matrices (B, rows, reach) for kernels (B,)."""
        basis = self.basis.to(sigma.device)
        shapes = [(r.stop - r.start, c.stop - c.start) for r, c in zip(self.rows, self.reach, strict=True)]
        pieces = (_blur_taps(sigma, len(basis) - 1) @ basis).split([math.prod(shape) for shape in shapes], 1)
        matrices = [piece.unflatten(1, shape) for piece, shape in zip(pieces, shapes, strict=True)]
        return list(zip(self.rows, self.reach, matrices, strict=True))

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        """(3, B, h, w) with one σ for each view (B,)."""
        bands = self.bands(sigma)
        if len(bands) == 1:
            matrix = bands[0][2]
            return _sandwich(matrix, x, matrix.mT)
        # All planes in one call: the planes of one view share its matrix.
        bands = [(rows, reach, matrix.expand(3, *matrix.shape).flatten(0, 1)) for rows, reach, matrix in bands]
        planes = x.flatten(0, 1)
        down = torch.empty_like(planes)
        for rows, reach, matrix in bands:
            torch.bmm(matrix, planes[:, reach], out=down[:, rows])
        for rows, reach, matrix in bands:
            torch.bmm(down[..., reach], matrix.mT, out=planes[..., rows])
        return planes.view_as(x)


def _blur_taps(sigma: Tensor, radius: int) -> Tensor:
    """Gaussian kernels (B,) -> (B, radius + 1): the weights at distance 0, 1, … that cover 3σ; both sides sum to 1."""
    distance = torch.arange(radius + 1.0, device=sigma.device)
    sigma = sigma.unsqueeze(-1)
    taps = torch.exp((distance / sigma).square() * -0.5) * (distance < 3 * sigma + 1)
    return taps / (2 * taps.sum(-1, keepdim=True) - 1)


def _at_once(pixels: int, device: torch.device) -> int:
    """How many views of so many pixels are worked on at once."""
    if device.type == "cpu":
        return max(1, _CPU_CHUNK // pixels) if pixels < _ALONE else 1
    return max(1, _GPU_CHUNK // pixels)


def _empty(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Uninitialised floats. In large pages where there are: the kernel takes microseconds to hand out a small one."""
    size = 4 * math.prod(shape)
    if device.type != "cpu" or size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, device=device)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel may be built without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.float32).view(shape)


def _between(uniform: Tensor, low: float, high: float) -> Tensor:
    return uniform * (high - low) + low


def _factor(uniform: Tensor, strength: float) -> Tensor:
    return _between(uniform, max(0.0, 1 - strength), 1 + strength)


class Augment:
    """Makes `views` views of `size` × `size` pixels of every sample, as a recipe says.

    augment = Augment(recipe("moco-v2"), views=2, size=32, seed=0)
    views = augment.apply(images, augment.plan(index, epoch))
    """

    def __init__(self, recipe: Recipe, *, views: int, size: int, seed: int, compile: bool = False) -> None:
        """`compile` fuses the turn of the hue, the only operation that gains by it; the results agree to rounding."""
        self.recipe, self.views, self.size, self.seed, self.compile = recipe, views, size, seed, compile
        self._shift = -torch.tensor(recipe.mean) / torch.tensor(recipe.std)
        self._blur = _Blur(size, min(math.ceil(3 * recipe.sigma[1]), size - 1))

    def plan(self, index: Tensor, epoch: int) -> Plan:
        """The parameters of all views of the samples `index` (N,)."""
        recipe = self.recipe
        area, ratio, position, rest = self._draw(index, epoch, _DRAWS)
        flip, jitter, order, brightness, contrast, saturation, hue, grey, blur, sigma, solarise = rest.unbind(-1)
        return Plan(
            area=area,
            ratio=ratio,
            position=position,
            flip=flip < recipe.flip,
            jitter=jitter < recipe.jitter,
            order=(order * len(ORDERS)).long(),
            brightness=_factor(brightness, recipe.brightness),
            contrast=_factor(contrast, recipe.contrast),
            saturation=_factor(saturation, recipe.saturation),
            hue=_between(hue, -recipe.hue, recipe.hue),
            grey=grey < recipe.grey,
            blur=blur < recipe.blur,
            sigma=_between(sigma, *recipe.sigma),
            solarise=solarise < recipe.solarise,
        )

    def _draw(self, index: Tensor, epoch: int, draws: tuple[int, ...]) -> list[Tensor]:
        """Areas, ratios and positions of the crops, and further draws in [0, 1) if asked for: (N, V, draws) each."""
        view, draw = (torch.arange(count, device=index.device) for count in (self.views, sum(draws)))
        uniform = counter.uniform(self.seed, _TAG, epoch, index.view(-1, 1, 1), view.view(-1, 1), draw)
        area, ratio, *rest = uniform.split(draws, -1)
        low, high = self.recipe.ratio
        return [_between(area, *self.recipe.scale), _between(ratio, math.log(low), math.log(high)), *rest]

    def boxes(self, plan: Plan, height: int, width: int) -> Tensor:
        """Where the crops lie in images of this size: (N, V, 4) of top, left, height, width.

        The first try that fits; if none does, the largest centred crop of an allowed aspect ratio.
        """
        return self._boxes(plan.area, plan.ratio, plan.position, height, width)

    def _boxes(self, area: Tensor, ratio: Tensor, position: Tensor, height: int, width: int) -> Tensor:
        # In float64, because a last bit that depends on the place in the batch must not move a box.
        area, ratio = area.double() * (height * width), ratio.double().exp()
        tried = torch.stack(((area / ratio).sqrt(), (area * ratio).sqrt()), -1).round().long()  # (N, V, tries, 2)
        narrow, wide = self.recipe.ratio
        whole = torch.tensor((height, width), device=tried.device)
        largest = torch.tensor((min(height, round(width / narrow)), min(width, round(height * wide)))).to(whole)
        fits = ((tried > 0) & (tried <= whole)).all(-1)
        found = fits.any(-1, keepdim=True)
        first = fits.long().argmax(-1)[..., None, None].expand(*fits.shape[:2], 1, 2)
        extent = torch.where(found, tried.gather(-2, first).squeeze(-2), largest)
        room = whole - extent
        corner = torch.where(found, (position.double() * (room + 1)).long(), room // 2)
        return torch.cat((corner, extent), -1)

    def crop(self, image: Tensor, index: int, epoch: int) -> Tensor:
        """Cut all crops of one image: (3, H, W) uint8 -> (V, 3, size, size) uint8. `apply` does the rest, flips too."""
        # The call overhead of a whole plan would be felt here.
        area, ratio, position = self._draw(torch.tensor([index]), epoch, _DRAWS[:3])
        boxes: list[list[int]] = self._boxes(area, ratio, position, *image.shape[-2:])[0].tolist()
        pixels = image.unsqueeze(0).contiguous(memory_format=torch.channels_last)  # twice as fast to resize
        crops = [
            F.interpolate(
                pixels[..., top : top + height, left : left + width],
                size=(self.size, self.size),
                mode="bilinear",
                antialias=True,
            )
            for top, left, height, width in boxes
        ]
        return torch.cat(crops).contiguous()

    def apply(self, batch: Tensor, plan: Plan) -> Tensor:
        """uint8 whole images (N, 3, H, W) or crops (N, V, 3, size, size) -> normalised float32 (V, N, 3, size, size).

        Both `views[v]` and `views.flatten(0, 1)` are channels-last.
        """
        samples, views = plan.flip.shape
        height, width = batch.shape[-2:]
        whole = batch.dim() == 4
        if not whole and batch.shape != (samples, views, 3, self.size, self.size):
            raise ValueError(f"crops of shape {tuple(batch.shape)} for {views} views of {self.size}×{self.size} pixels")
        images = batch if whole else batch.flatten(0, 1)
        device = batch.device
        boxes = self.boxes(plan, height, width).flatten(0, 1).to(device) if whole else None
        # What decides the course of the work is read here, on the host, and not waited for while it goes on.
        plan = plan.map(lambda field: field.flatten(0, 1).cpu())
        parts = list(_grouped(plan, _at_once(max(self.size**2, height * width), device)))
        order = torch.cat(parts)
        script = _script(plan.map(lambda field: field[order]), device)
        sample, view = order // views, order % views
        source, place = (sample if whole else order).to(device), view * samples + sample
        boxes = boxes[order.to(device)] if boxes is not None else None
        out = _empty((views * samples, self.size**2, 3), device)
        start = 0
        for part in parts:
            run = slice(start, start + len(part))
            box = boxes[run] if boxes is not None else None
            x = self._render(images.index_select(0, source[run]), box, script.part(run))
            self._put(x, out, place[run])
            start += len(part)
        return out.view(views, samples, self.size, self.size, 3).permute(0, 1, 4, 2, 3)

    def _render(self, images: Tensor, boxes: Tensor | None, script: _Script) -> Tensor:
        """Views of images (B, 3, H, W) uint8 -> (3, B, size²) in 0 … 255. The script is one of a part by `_grouped`."""
        recipe = self.recipe
        x = images.transpose(0, 1)
        if boxes is None:
            x = _where(script.flip, x, lambda part: part.flip(-1))
        x = x.to(torch.float32, memory_format=torch.contiguous_format)
        if boxes is not None:
            x = _resize(x, boxes, torch.tensor(script.flip, device=x.device), self.size)
        x = x.flatten(2)
        if recipe.grey_first:
            x = _greyscale(x, script.grey)
        _jitter(x, script, _compiled_hue() if self.compile else _hue)
        if not recipe.grey_first:
            x = _greyscale(x, script.grey)
        if script.blur[0]:
            x = self._blur(x.unflatten(2, (self.size, self.size)), script.sigma).flatten(2)
        return _where(script.solarise, x, lambda part: _solarise(part, recipe.threshold))

    def _put(self, x: Tensor, out: Tensor, place: Tensor) -> None:
        """Normalise views (3, B, size²) in 0 … 255 and write them to their places in (…, size², 3)."""
        for plane, channel, shift, std in zip(
            x, out.unbind(-1), self._shift.to(x.device), self.recipe.std, strict=True
        ):
            if len(place) == 1:  # in one pass
                torch.add(shift, plane, alpha=1 / (255 * std), out=channel[int(place)].unsqueeze(0))
            else:
                torch.add(shift, plane, alpha=1 / (255 * std), out=plane)
                channel.index_copy_(0, place.to(x.device), plane)
