"""How one image becomes V views: random resized crop, flip, colour jitter, greyscale, blur, solarise, normalise.

Every random number is a hash of (seed, epoch, sample, view, draw), so a sample's views are the same in any batch,
worker or rank. All views of a batch are made together. Crop, flip and blur are separable and linear, so each is a
product A X B with small matrices. Colours are three planes (3, B, …), each in one piece; B counts views, of whatever
samples.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview import counter
from manyview.views.recipes import Recipe

__all__ = ["JITTER", "ORDERS", "Augment", "Plan"]

JITTER = ("brightness", "contrast", "saturation", "hue")
ORDERS = torch.tensor(list(itertools.permutations(range(len(JITTER)))))  # (24, 4) of numbers in JITTER
_CONTRAST, _SATURATION, _HUE = 1, 2, 3  # numbers in JITTER

_TAG = 0x7669657773  # "views": keeps these draws apart from everybody else's
_TRIES = 10  # crops are drawn until one fits, as often as torchvision draws them
_DRAWS = (_TRIES, _TRIES, 2, 11)  # area, ratio, position, and one each for the rest; new ones go to the end
_LUMA = torch.tensor([0.2989, 0.587, 0.114])  # ITU-R 601, to torchvision's digits
_OPPOSITE = torch.tensor([1 / 2, 1 / 3, 2 / 3]).view(3, 1, 1)  # see _hue
# Up to _DENSE pixels a blur is one matrix; beyond it skips the zeros far from the diagonal, _BAND rows at a time.
_DENSE, _BAND = 112, 48
# Pixels worked on at once: few enough for the planes to stay in the cache, many enough for the calls not to count.
_CPU_CHUNK, _GPU_CHUNK = 1 << 18, 1 << 25


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


# Colour: operations on x (3, B, P) in [0, 1], in place, with one parameter for each view (B, 1).


def _luma(x: Tensor) -> Tensor:
    """(3, B, P) -> (B, P)"""
    return (_LUMA.to(x.device) @ x.flatten(1)).view(x.shape[1:])


def _blend(x: Tensor, factor: Tensor, contrast: Tensor, saturation: Tensor) -> None:
    """Away from the mean grey where `contrast` is 1, from each pixel's grey where `saturation` is, else from black."""
    grey = _luma(x)
    mean = grey.mean(-1, keepdim=True)
    grey.mul_(saturation).add_(mean.mul_(contrast))
    x.lerp_(grey, 1 - factor).clamp_(0, 1)


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
    chroma = torch.sub(high, low).clamp_min_(1e-12)
    below = high.sub_(red).div_(chroma)
    across = torch.sub(green, blue).div_(chroma)
    way = torch.full_like(across, 0.5).copysign_(across)
    way.add_(across, alpha=-1 / 3).mul_(below).add_(across, alpha=1 / 6)
    way.add_(turn + 1).frac_()
    # A primary is at its highest up to 1/6 of the circle away and at its lowest from 2/6 on. Red lies at both
    # ends of the unrolled circle, so its distance is taken from cyan.
    torch.sub(way, _OPPOSITE.to(x.device), out=x).abs_().clamp_(1 / 6, 1 / 3)
    torch.addcmul(torch.sub(low, chroma, out=way), chroma, red, value=6, out=red)
    low.add_(chroma, alpha=2)
    for plane in (green, blue):
        torch.addcmul(low, chroma, plane, value=-6, out=plane)


def _solarise(x: Tensor, threshold: float) -> Tensor:
    """Invert what is at least as bright as the threshold."""
    bright = x.clone().ge_(threshold)
    return x.addcmul_(bright, torch.rsub(x, 1, alpha=2))


def _where(chosen: Tensor, x: Tensor, operation: Callable[[Tensor], Tensor]) -> Tensor:
    """x (3, B, …) with the chosen (B,) views replaced by what the operation makes of them."""
    index = chosen.nonzero().squeeze(1).to(x.device)
    if len(index) == 0:
        return x
    if len(index) == len(chosen):
        return operation(x)
    return x.index_copy_(1, index, operation(x.index_select(1, index)))


def _greyscale(x: Tensor, chosen: Tensor) -> Tensor:
    return _where(chosen, x, lambda part: part.copy_(_luma(part)))


def _hue_turn(plan: Plan) -> Tensor:
    """Which of a view's four jitter operations is the hue; 4 if there is no jitter."""
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


def _jitter(x: Tensor, plan: Plan) -> None:
    """The four operations in each view's own order; the views are sorted by the turn of their hue."""
    kinds = ORDERS[plan.order]
    parameters = torch.stack([getattr(plan, name) for name in JITTER], -1).gather(-1, kinds)
    columns = (parameters, (kinds == _CONTRAST).float(), (kinds == _SATURATION).float())
    parameter, contrast, saturation = (column.to(x.device).t().unsqueeze(-1) for column in columns)  # (4, B, 1)
    edges = [0, *torch.bincount(_hue_turn(plan), minlength=len(JITTER)).cumsum(0).tolist()]
    for turn in range(len(JITTER)):
        hue = slice(edges[turn], edges[turn + 1])
        for run in (slice(0, hue.start), slice(hue.stop, edges[len(JITTER)])):
            if run.start < run.stop:
                _blend(x[:, run], parameter[turn, run], contrast[turn, run], saturation[turn, run])
        if hue.start < hue.stop:
            _hue(x[:, hue], parameter[turn, hue])


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
    """Cut at boxes (B, 4): (3, B, H, W) in 0 … 255 -> (3, B, size, size) in [0, 1]."""
    top, left, height, width = boxes.unbind(-1)
    rows = _resize_matrix(top, height, x.shape[-2], size, dim=2).div_(255)
    columns = _resize_matrix(left, width, x.shape[-1], size, dim=1, flip=flip)
    return _sandwich(rows, x, columns)


class _Band(NamedTuple):
    """Some rows of a blur matrix, without the columns beyond their reach, where it is zero."""

    reach: slice
    basis: Tensor  # (radius + 1, rows, reach): weighted by a kernel's taps it sums to the matrix
    transposed: Tensor  # (radius + 1, reach, rows)


def _blur_bands(size: int, radius: int) -> list[_Band]:
    """The blur of a line of `size` pixels with reflected ends."""
    line = torch.arange(size)
    basis = torch.zeros(radius + 1, size, size)
    for offset in range(-radius, radius + 1):
        reflected = (line + offset).abs()
        basis[abs(offset), line, torch.minimum(reflected, 2 * (size - 1) - reflected)] += 1
    step = size if size <= _DENSE else _BAND
    bands = []
    for start in range(0, size, step):
        stop = min(start + step, size)
        reach = slice(max(0, start - radius), min(stop + radius, size))
        block = basis[:, start:stop, reach]
        bands.append(_Band(reach, block.contiguous(), block.mT.contiguous()))
    return bands


def _blur_taps(sigma: Tensor, radius: int) -> Tensor:
    """Gaussian kernels (B,) -> (B, radius + 1): the weights at distance 0, 1, … that cover 3σ; both sides sum to 1."""
    distance = torch.arange(radius + 1.0, device=sigma.device)
    sigma = sigma.unsqueeze(-1)
    taps = torch.exp((distance / sigma).square() * -0.5) * (distance < 3 * sigma + 1)
    return taps / (2 * taps.sum(-1, keepdim=True) - 1)


def _blur(x: Tensor, sigma: Tensor, bands: list[_Band]) -> Tensor:
    """(3, B, h, w) with one σ for each view (B,)."""
    taps = _blur_taps(sigma, len(bands[0].basis) - 1)
    left = [_weighted(taps, band.basis) for band in bands]
    right = [_weighted(taps, band.transposed) for band in bands]
    if len(bands) == 1:
        return _sandwich(left[0], x, right[0])
    x = torch.cat([matrix @ x[..., band.reach, :] for matrix, band in zip(left, bands, strict=True)], -2)
    return torch.cat([x[..., band.reach] @ matrix for matrix, band in zip(right, bands, strict=True)], -1)


def _weighted(taps: Tensor, basis: Tensor) -> Tensor:
    """(B, R), (R, h, w) -> (B, h, w)"""
    return (taps @ basis.to(taps.device).flatten(1)).view(-1, *basis.shape[1:])


def _between(uniform: Tensor, low: float, high: float) -> Tensor:
    return uniform * (high - low) + low


def _factor(uniform: Tensor, strength: float) -> Tensor:
    return _between(uniform, max(0.0, 1 - strength), 1 + strength)


class Augment:
    """Makes `views` views of `size` × `size` pixels of every sample, as a recipe says.

    augment = Augment(recipe("moco-v2"), views=2, size=32, seed=0)
    views = augment.apply(images, augment.plan(index, epoch))
    """

    def __init__(self, recipe: Recipe, *, views: int, size: int, seed: int) -> None:
        self.recipe, self.views, self.size, self.seed = recipe, views, size, seed
        self._shift = -torch.tensor(recipe.mean) / torch.tensor(recipe.std)
        self._bands = _blur_bands(size, min(math.ceil(3 * recipe.sigma[1]), size - 1))

    def plan(self, index: Tensor, epoch: int) -> Plan:
        """The parameters of all views of the samples `index` (N,)."""
        recipe = self.recipe
        view, draw = (torch.arange(count, device=index.device) for count in (self.views, sum(_DRAWS)))
        uniform = counter.uniform(self.seed, _TAG, epoch, index.view(-1, 1, 1), view.view(-1, 1), draw)
        area, ratio, position, rest = uniform.split(_DRAWS, -1)
        flip, jitter, order, brightness, contrast, saturation, hue, grey, blur, sigma, solarise = rest.unbind(-1)
        return Plan(
            area=_between(area, *recipe.scale),
            ratio=_between(ratio, math.log(recipe.ratio[0]), math.log(recipe.ratio[1])),
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

    def boxes(self, plan: Plan, height: int, width: int) -> Tensor:
        """Where the crops lie in images of this size: (N, V, 4) of top, left, height, width.

        The first try that fits; if none does, the largest centred crop of an allowed aspect ratio.
        """
        # In float64, because a last bit that depends on the place in the batch must not move a box.
        area, ratio = plan.area.double() * (height * width), plan.ratio.double().exp()
        tried = torch.stack(((area / ratio).sqrt(), (area * ratio).sqrt()), -1).round().long()  # (N, V, tries, 2)
        narrow, wide = self.recipe.ratio
        whole = torch.tensor((height, width), device=tried.device)
        largest = torch.tensor((min(height, round(width / narrow)), min(width, round(height * wide)))).to(whole)
        fits = ((tried > 0) & (tried <= whole)).all(-1)
        found = fits.any(-1, keepdim=True)
        first = fits.long().argmax(-1)[..., None, None].expand(*fits.shape[:2], 1, 2)
        extent = torch.where(found, tried.gather(-2, first).squeeze(-2), largest)
        room = whole - extent
        corner = torch.where(found, (plan.position.double() * (room + 1)).long(), room // 2)
        return torch.cat((corner, extent), -1)

    def crop(self, image: Tensor, index: int, epoch: int) -> Tensor:
        """Cut all crops of one image: (3, H, W) uint8 -> (V, 3, size, size) uint8. `apply` does the rest, flips too."""
        plan = self.plan(torch.tensor([index]), epoch)
        boxes: list[list[int]] = self.boxes(plan, *image.shape[-2:])[0].tolist()
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
        boxes = self.boxes(plan, height, width).flatten(0, 1).to(batch.device) if whole else None
        # What decides the course of the work is read here, on the host, and not waited for while it goes on.
        plan = plan.map(lambda field: field.flatten(0, 1).cpu())
        out = torch.empty(views * samples, self.size**2, 3, device=batch.device)
        chunk = (_CPU_CHUNK if batch.device.type == "cpu" else _GPU_CHUNK) // max(self.size**2, height * width)
        for part in _grouped(plan, max(1, chunk)):
            sample, view = part // views, part % views
            source = (sample if whole else part).to(batch.device)
            place = (view * samples + sample).to(batch.device)
            box = boxes[part.to(batch.device)] if boxes is not None else None
            x = self._render(images.index_select(0, source), box, Plan(*(field[part] for field in plan)))
            for plane, channel in zip(x, out.unbind(-1), strict=True):
                channel.index_copy_(0, place, plane)
        return out.view(views, samples, self.size, self.size, 3).permute(0, 1, 4, 2, 3)

    def _render(self, images: Tensor, boxes: Tensor | None, plan: Plan) -> Tensor:
        """Views of images (B, 3, H, W): uint8 -> (3, B, size²). The plan (B,) is one of those that `_grouped` makes."""
        recipe = self.recipe
        x = images.transpose(0, 1).to(torch.float32, memory_format=torch.contiguous_format)
        if boxes is None:
            x = _where(plan.flip, x.div_(255), lambda part: part.flip(-1))
        else:
            x = _resize(x, boxes, plan.flip.to(x.device), self.size)
        x = x.flatten(2)
        if recipe.grey_first:
            x = _greyscale(x, plan.grey)
        _jitter(x, plan)
        if not recipe.grey_first:
            x = _greyscale(x, plan.grey)
        if plan.blur[0]:
            x = _blur(x.unflatten(2, (self.size, self.size)), plan.sigma.to(x.device), self._bands).flatten(2)
        x = _where(plan.solarise, x, lambda part: _solarise(part, recipe.threshold))
        for plane, shift, std in zip(x, self._shift.to(x.device), recipe.std, strict=True):
            torch.add(shift, plane, alpha=1 / std, out=plane)
        return x
