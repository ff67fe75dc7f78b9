"""How one image becomes V views: random resized crop, flip, colour jitter, greyscale, blur, solarise, normalise.

Every random number is a hash of (seed, epoch, sample, view, draw), so a sample's views are the same in any batch,
worker or rank. All views of a batch are made together; B counts views, of whatever samples.
"""

import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyview import counter
from manyview.fields import DEEP, FIELDS, IMAGE
from manyview.views.colour import Jitter, compiled_hue, greyscale, hue, solarise, where
from manyview.views.plan import ORDERS, Plan
from manyview.views.policies import Policy
from manyview.views.randaugment import RandAugment, RandPlan
from manyview.views.space import Blur, nearest, pick, resize

_TAG = 0x7669657773  # "views": keeps these draws apart from everybody else's
_TRIES = 10  # crops are drawn until one fits, as often as torchvision draws them
_DRAWS = (_TRIES, _TRIES, 2, 11)  # area, ratio, position, and one each for the rest; new ones go to the end
# Pixels worked on at once: few enough for the planes to stay in the cache, many enough for the calls not to count.
# From _ALONE on a view is worked on by itself, and then skips the operations that it does not need.
_CPU_CHUNK, _GPU_CHUNK, _ALONE = 1 << 18, 1 << 25, 1 << 15
_LARGE = 1 << 24  # bytes


class _Script(NamedTuple):
    """The operations on S views: lists for what selects an operation, tensors on the device for its parameters."""

    flip: list[bool]
    jitter: Jitter
    grey: list[bool]
    blur: list[bool]
    solarise: list[bool]
    sigma: Tensor

    def part(self, run: slice) -> "_Script":
        return _Script(
            self.flip[run], self.jitter.part(run), self.grey[run], self.blur[run], self.solarise[run], self.sigma[run]
        )


def _script(plan: Plan, device: torch.device) -> _Script:
    """What a flat plan (S,) asks for."""
    flip, grey, blur, invert = (field.tolist() for field in (plan.flip, plan.grey, plan.blur, plan.solarise))
    return _Script(flip, Jitter.of(plan, device), grey, blur, invert, plan.sigma.to(device))


def _grouped(plan: Plan, chunk: int) -> Iterator[Tensor]:
    """The numbers of a flat plan's views, in pieces to be worked on at once.

    A piece is blurred as a whole or not at all, and its views are sorted as the jitter wants them.
    """
    rank = Jitter.rank(plan)
    for blurred in (False, True):
        chosen = (plan.blur == blurred).nonzero().squeeze(1)
        if len(chosen):
            yield from chosen[rank[chosen].argsort(stable=True)].tensor_split(math.ceil(len(chosen) / chunk))


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


@dataclass(frozen=True)
class Group:
    """Views of one size. Those of a group with a name are called FIELD.NAME, as `image.small`."""

    views: int
    size: int
    name: str = ""
    scale: tuple[float, float] | None = None
    """Share of the area that a crop covers; the policy's unless given."""

    def __call__(self, field: str) -> str:
        """What the group's views of a field are called."""
        return f"{field}.{self.name}" if self.name else field


def _check(name: str, x: Tensor, samples: int, channels: int, cut: Group | None) -> None:
    """Whether whole fields (N, c, H, W), or crops (N, V, c, size, size) of a group, are what they are said to be."""
    field = FIELDS[name]
    wanted: tuple[int, ...] = (samples, channels, *x.shape[-2:])
    if cut is not None:
        wanted = (samples, cut.views, channels, cut.size, cut.size)
    if x.shape != wanted or not (x.dtype == field.dtype or (field.coloured and x.dtype == torch.uint16)):
        said = "a whole field" if cut is None else f"{cut.views} crops of {cut.size}×{cut.size} pixels"
        raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}, but {said} would be {field.dtype} {wanted}")


class Augment:
    """Makes `views` views of `size` × `size` pixels of every sample, as a policy says; `more` groups of other sizes.

    augment = Augment(policy("moco-v2"), views=2, size=32, seed=0)
    views = augment.apply({"image": images}, augment.plan(index, epoch))["image"]
    """

    def __init__(
        self,
        policy: Policy,
        *,
        views: int,
        size: int,
        seed: int,
        compile: bool = False,
        fields: Sequence[str] = (IMAGE,),
        more: Sequence[Group] = (),
    ) -> None:
        """`compile` fuses the turn of the hue, the only operation that gains by it; the results agree to rounding.
        All `fields` of a sample are cut and mirrored alike."""
        self.policy, self.views, self.size, self.seed, self.compile = policy, views, size, seed, compile
        self.fields, self.groups = tuple(fields), (Group(views, size), *more)
        if len({group.name for group in self.groups}) < len(self.groups):
            raise ValueError(f"groups of views need names of their own: {[group.name for group in self.groups]}")
        self.mean, self.std = policy.mean, policy.std  # of images
        self._shift = -torch.tensor(policy.mean) / torch.tensor(policy.std)
        self._rand = RandAugment(operations=policy.rand_operations, magnitude=policy.rand_magnitude, seed=seed)
        self._blur = {
            side: Blur(side, min(math.ceil(3 * policy.sigma[1]), side - 1))
            for side in {group.size for group in self.groups}
        }

    def plan(self, index: Tensor, epoch: int) -> Plan:
        """The parameters of all views of the samples `index` (N,), group after group."""
        policy = self.policy
        area, ratio, position, rest = self._draw(index, epoch, _DRAWS)
        flip, jitter, order, brightness, contrast, saturation, hue, grey, blur, sigma, solarise = rest.unbind(-1)
        return Plan(
            area=area,
            ratio=ratio,
            position=position,
            flip=flip < policy.flip,
            jitter=jitter < policy.jitter,
            order=(order * len(ORDERS)).long(),
            brightness=_factor(brightness, policy.brightness),
            contrast=_factor(contrast, policy.contrast),
            saturation=_factor(saturation, policy.saturation),
            hue=_between(hue, -policy.hue, policy.hue),
            grey=grey < policy.grey,
            blur=blur < policy.blur,
            sigma=_between(sigma, *policy.sigma),
            solarise=solarise < policy.solarise,
            **self._rand.plan(index, epoch, self._count)._asdict(),
        )

    def _draw(self, index: Tensor, epoch: int, draws: tuple[int, ...]) -> list[Tensor]:
        """Areas, ratios and positions of the crops, and further draws in [0, 1) if asked for: (N, V, draws) each."""
        view, draw = (torch.arange(count, device=index.device) for count in (self._count, sum(draws)))
        uniform = counter.uniform(self.seed, _TAG, epoch, index.view(-1, 1, 1), view.view(-1, 1), draw)
        area, ratio, *rest = uniform.split(draws, -1)
        low, high = self.policy.ratio
        areas = [
            _between(part, *(group.scale or self.policy.scale))
            for group, part in zip(self.groups, area.split([group.views for group in self.groups], 1), strict=True)
        ]
        return [torch.cat(areas, 1), _between(ratio, math.log(low), math.log(high)), *rest]

    def boxes(self, plan: Plan, height: int, width: int) -> Tensor:
        """Where the crops lie in images of this size: (N, V, 4) of top, left, height, width.

        The first try that fits; if none does, the largest centred crop of an allowed aspect ratio.
        """
        return self._boxes(plan.area, plan.ratio, plan.position, height, width)

    def _boxes(self, area: Tensor, ratio: Tensor, position: Tensor, height: int, width: int) -> Tensor:
        # In float64, because a last bit that depends on the place in the batch must not move a box.
        area, ratio = area.double() * (height * width), ratio.double().exp()
        tried = torch.stack(((area / ratio).sqrt(), (area * ratio).sqrt()), -1).round().long()  # (N, V, tries, 2)
        narrow, wide = self.policy.ratio
        whole = torch.tensor((height, width), device=tried.device)
        largest = torch.tensor((min(height, round(width / narrow)), min(width, round(height * wide)))).to(whole)
        fits = ((tried > 0) & (tried <= whole)).all(-1)
        found = fits.any(-1, keepdim=True)
        first = fits.long().argmax(-1)[..., None, None].expand(*fits.shape[:2], 1, 2)
        extent = torch.where(found, tried.gather(-2, first).squeeze(-2), largest)
        room = whole - extent
        corner = torch.where(found, (position.double() * (room + 1)).long(), room // 2)
        return torch.cat((corner, extent), -1)

    @property
    def _count(self) -> int:
        return sum(group.views for group in self.groups)

    def crop(self, sample: Mapping[str, Tensor], index: int, epoch: int) -> dict[str, Tensor]:
        """Cut all crops of a sample: fields (c, H, W) -> views (V, c, size, size) by name, of the fields' types.
        `apply` does the rest, flips too."""
        # The call overhead of a whole plan would be felt here.
        area, ratio, position = self._draw(torch.tensor([index]), epoch, _DRAWS[:3])
        height, width = sample[self.fields[0]].shape[-2:]
        boxes: list[list[int]] = self._boxes(area, ratio, position, height, width)[0].tolist()
        crops, start = {}, 0
        for group in self.groups:
            stretch, size = boxes[start : start + group.views], (group.size, group.size)
            for name in self.fields:
                pixels = sample[name].unsqueeze(0).contiguous(memory_format=torch.channels_last)  # twice as fast
                cuts = [pixels[..., top : top + high, left : left + wide] for top, left, high, wide in stretch]
                crops[group(name)] = torch.cat([FIELDS[name].resized(cut, size) for cut in cuts]).contiguous()
            start += group.views
        return crops

    def apply(self, fields: Mapping[str, Tensor], plan: Plan, *, cut: bool = False) -> dict[str, Tensor]:
        """Fields (N, c, H, W), or `cut` crops (N, V, c, size, size) by view -> views (V, N, c, size, size) by name, in
        float32: images normalised, others as their values.

        Both `view[v]` and `view.flatten(0, 1)` are channels-last.
        """
        views, start = {}, 0
        for group in self.groups:
            stretch = slice(start, start + group.views)
            part = Plan(*(field[:, stretch] for field in plan))
            for name in self.fields:
                x = fields[group(name) if cut else name]
                coloured = FIELDS[name].coloured
                channels = len(self.mean) if coloured else FIELDS[name].channels
                _check(name, x, len(plan.flip), channels, group if cut else None)
                make = self._coloured if coloured else self._plain
                views[group(name)] = make(name, x, part, group.size, cut)
            start += group.views
        return views

    def views_of(self, samples: Sequence[Mapping[str, Tensor]], index: Sequence[int], epoch: int) -> dict[str, Tensor]:
        """The views of some samples, which may differ in size."""
        crops = [self.crop(sample, number, epoch) for sample, number in zip(samples, index, strict=True)]
        batch = {name: torch.stack([each[name] for each in crops]) for name in crops[0]}
        return self.apply(batch, self.plan(torch.tensor(index), epoch), cut=True)

    def values(self, views: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Views as values again: images in [0, 1]."""
        mean, std = (torch.tensor(channels).view(-1, 1, 1) for channels in (self.mean, self.std))
        return {
            name: (view * std.to(view.device) + mean.to(view.device)).clamp(0, 1)
            if FIELDS[name.partition(".")[0]].coloured
            else view
            for name, view in views.items()
        }

    def _plain(self, name: str, x: Tensor, plan: Plan, size: int, cut: bool) -> Tensor:
        """The views of a field whose colours are not changed."""
        field, (samples, views) = FIELDS[name], plan.flip.shape
        if not cut:
            boxes = self.boxes(plan, *x.shape[-2:]).to(x.device)
            if field.nearest:
                x = pick(field.values(x), *nearest(boxes, size))
            else:
                planes = x.repeat_interleave(views, 0).transpose(0, 1).float()
                still = torch.zeros(samples * views, dtype=torch.bool, device=x.device)
                resized = resize(planes, boxes.flatten(0, 1), still, size).transpose(0, 1)
                x = field.values(resized).unflatten(0, (samples, views))
        else:
            x = field.values(x)
        x = torch.where(plan.flip.to(x.device)[..., None, None, None], field.mirrored(x), x)
        x = x.transpose(0, 1).flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return x.view(views, samples, *x.shape[1:])

    def _coloured(self, name: str, batch: Tensor, plan: Plan, size: int, cut: bool) -> Tensor:
        """The views of images."""
        samples, views = plan.flip.shape
        height, width = batch.shape[-2:]
        images = batch.flatten(0, 1) if cut else batch
        device = batch.device
        boxes = None if cut else self.boxes(plan, height, width).flatten(0, 1).to(device)
        # What decides the course of the work is read here, on the host, and not waited for while it goes on.
        plan = plan.map(lambda field: field.flatten(0, 1).cpu())
        parts = list(_grouped(plan, _at_once(max(size**2, height * width), device)))
        order = torch.cat(parts)
        plan = plan.map(lambda field: field[order])
        script = _script(plan, device)
        sample, view = order // views, order % views
        source, place = (order if cut else sample).to(device), view * samples + sample
        boxes = boxes[order.to(device)] if boxes is not None else None
        out = _empty((views * samples, size**2, len(self.mean)), device)
        start = 0
        for part in parts:
            run = slice(start, start + len(part))
            box = boxes[run] if boxes is not None else None
            x = self._render(images.index_select(0, source[run]), box, script.part(run), size)
            if self.policy.rand_operations:
                x = self._randomise(x, RandPlan(plan.operation[run], plan.backwards[run]), size)
            self._put(x, out, place[run])
            start += len(part)
        return out.view(views, samples, size, size, -1).permute(0, 1, 4, 2, 3)

    def _render(self, images: Tensor, boxes: Tensor | None, script: _Script, size: int) -> Tensor:
        """Views of images (B, c, H, W) -> (c, B, size²) in 0 … 255. The script is one of a part by `_grouped`."""
        policy = self.policy
        if images.dtype == torch.uint16:
            images = images.float() / DEEP
        x = images.transpose(0, 1)
        if boxes is None:
            x = where(script.flip, x, lambda part: part.flip(-1))
        x = x.to(torch.float32, memory_format=torch.contiguous_format)
        if boxes is not None:
            x = resize(x, boxes, torch.tensor(script.flip, device=x.device), size)
        x = x.flatten(2)
        if policy.grey_first:
            x = greyscale(x, script.grey)
        alone = x.shape[1] == 1 and x.shape[2] >= _ALONE
        script.jitter.apply(x, compiled_hue() if self.compile else hue, alone=alone)
        if not policy.grey_first:
            x = greyscale(x, script.grey)
        if script.blur[0]:
            x = self._blur[size](x.unflatten(2, (size, size)), script.sigma).flatten(2)
        return where(script.solarise, x, lambda part: solarise(part, policy.threshold))

    def _randomise(self, x: Tensor, plan: RandPlan, size: int) -> Tensor:
        """(3, B, size²) in 0 … 255, by RandAugment."""
        pixels = x.unflatten(2, (size, size)).transpose(0, 1).round().to(torch.uint8)
        return self._rand.apply(pixels, plan).transpose(0, 1).flatten(2).float().contiguous()

    def _put(self, x: Tensor, out: Tensor, place: Tensor) -> None:
        """Normalise views (c, B, size²) in 0 … 255 and write them to their places in (…, size², 3)."""
        for plane, channel, shift, std in zip(
            x, out.unbind(-1), self._shift.to(x.device), self.policy.std, strict=True
        ):
            if len(place) == 1:  # in one pass
                torch.add(shift, plane, alpha=1 / (255 * std), out=channel[int(place)].unsqueeze(0))
            else:
                torch.add(shift, plane, alpha=1 / (255 * std), out=plane)
                channel.index_copy_(0, place.to(x.device), plane)
