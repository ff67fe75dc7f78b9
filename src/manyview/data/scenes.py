"""`scenes`: a procedural image set, one solid per image, whose label is the kind of the solid.

Colour, texture, light, pose, scale, position and background are drawn independently of the kind. Everything is a pure
function of (seed, index). Only exactly rounded operations (+ − × ÷ √, comparisons, integer hashes) make the pixels:
sin, pow or a matrix product may round differently at another place of a batch, these cannot.

The camera is orthographic and looks along −z; x points right, y up; the image spans [−1, 1]². Depth is the distance
from the camera plane in the same unit. A solid has coordinates of its own, in which it lies inside the unit ball.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi, sin, sqrt

import torch
from torch import Tensor

from manyview.counter import bits, uniform
from manyview.data.source import Source, digest
from manyview.fields import FIELDS, IMAGE

Solid = Callable[[Tensor, Tensor, Tensor], Tensor]
Spread = Callable[[Tensor], Tensor]

VIEWS = ("rgb", "depth", "normals", "segmentation")

_VERSION = 2  # part of the fingerprint: raise it with every change that moves a pixel
_TAG = 0x7363656E6573  # "scenes": keeps these draws apart from everybody else's
_SPLITS = {"train": 0, "test": 1 << 40}  # the first scene of each
_PIXELS_AT_ONCE = 256 * 32 * 32  # what is worked on together stays close to the cache
_DISTRACTORS = 3
_ROUNDS, _STEPS_PER_ROUND = 16, 4  # of sphere tracing
_NEAR = 1e-3  # a ray that comes closer has hit
_STRIDE = 2e-3  # of the differences that give a normal


# The solids: signed distances, outside at least lower bounds of them.


def _length(first: Tensor, *others: Tensor) -> Tensor:
    total = first.square()
    for other in others:
        total = total + other.square()
    return total.sqrt()


def _highest(first: Tensor, *others: Tensor) -> Tensor:
    for other in others:
        first = torch.maximum(first, other)
    return first


def _cone(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    # The side falls from (0, 0.95) to (0.72, -0.65), so its normal is along (1.6, 0.72).
    side = sqrt(1.6**2 + 0.72**2)
    return torch.maximum(_length(x, z) * (1.6 / side) + (y - 0.95) * (0.72 / side), -0.65 - y)


def _star(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Five spikes in the plane of x and y."""
    x = x.abs()
    for mirror_x, mirror_y in ((cos(pi / 5), -sin(pi / 5)), (-cos(pi / 5), -sin(pi / 5))):
        behind = 2 * (x * mirror_x + y * mirror_y).clamp(min=0)
        x, y = x - behind * mirror_x, y - behind * mirror_y
    # Folded, one spike is left. Its edge runs from the tip (0, 0.95) down to the notch.
    notch_x, notch_y = 0.42 * sin(pi / 5), 0.42 * cos(pi / 5)
    edge = sqrt(notch_x**2 + (0.95 - notch_y) ** 2)
    side = x.abs() * ((0.95 - notch_y) / edge) + (y - 0.95) * (notch_x / edge)
    return torch.maximum(side, z.abs() - 0.22)


def _cross(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Three square bars at right angles."""
    x, y, z = x.abs(), y.abs(), z.abs()
    bar = torch.minimum(torch.maximum(x, y), torch.minimum(torch.maximum(y, z), torch.maximum(x, z)))
    return _highest(bar - 0.2, x - 0.93, y - 0.93, z - 0.93)


def _dumbbell(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    y = y.abs() - 0.58
    return torch.minimum(_length(x, y, z) - 0.39, torch.maximum(_length(x, z) - 0.15, y))


KINDS: dict[str, Solid] = {
    "sphere": lambda x, y, z: _length(x, y, z) - 0.75,
    "box": lambda x, y, z: _highest(x.abs(), y.abs(), z.abs()) - 0.56,
    "cylinder": lambda x, y, z: torch.maximum(_length(x, z) - 0.5, y.abs() - 0.8),
    "cone": _cone,
    "torus": lambda x, y, z: _length(_length(x, z) - 0.7, y) - 0.25,
    "capsule": lambda x, y, z: _length(x, (y.abs() - 0.64).clamp(min=0), z) - 0.34,
    "tetrahedron": lambda x, y, z: _highest(x + y + z, x - y - z, y - x - z, z - x - y) / sqrt(3) - 0.33,
    "star": _star,
    "cross": _cross,
    "dumbbell": _dumbbell,
}
DISTRACTOR = len(KINDS) + 1  # in a segmentation map, where 0 is the wall and 1 + label the solid


# The contents of a scene. A parameter of N scenes is a tensor whose last dimension is N; a vector is (3, N).


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _unit(vector: Tensor) -> Tensor:
    return vector / _length(*vector).clamp(min=1e-9)


def _fraction(x: Tensor) -> Tensor:
    return x - x.floor()


def _wave(phase: Tensor) -> Tensor:
    """A triangle wave of period 1 between −1 and 1."""
    return 4 * (_fraction(phase) - 0.5).abs() - 1


class _Draws:
    """Hands out the random numbers of N scenes one after another: the order of the calls is part of the set."""

    def __init__(self, seed: int, index: Tensor) -> None:
        self._scene = bits(seed, _TAG, index)
        self._count = 0

    def __call__(self, low: float, high: float) -> Tensor:
        """(N,) uniform numbers."""
        self._count += 1
        return uniform(self._scene, self._count) * (high - low) + low

    def point(self, low: float, high: float, dimensions: int = 3) -> Tensor:
        """(dimensions, N) uniform numbers."""
        return torch.stack([self(low, high) for _ in range(dimensions)])

    def direction(self, dimensions: int = 3) -> Tensor:
        """(dimensions, N) unit vectors. Sums of three uniform numbers are near enough to normal ones to favour none."""
        return _unit(self.point(-1, 1, dimensions) + self.point(-1, 1, dimensions) + self.point(-1, 1, dimensions))

    def colour(self, saturation: float) -> Tensor:
        """(3, N) RGB of full brightness, any hue and at most this saturation."""
        hue = self(0, 1)
        lack = 2 - 6 * (_fraction(torch.stack((hue, hue + 2 / 3, hue + 1 / 3))) - 0.5).abs()
        return 1 - self(0, saturation) * lack.clamp(0, 1)

    def pose(self) -> Tensor:
        """(3, 3, N): the camera's axes x, y, z in the coordinates of a solid.

        It is turned about its own axis y by any angle, seen from 11° to 35° above and rolled by up to 22°.
        """
        cosine, sine = self.direction(2)
        zero, one = torch.zeros_like(sine), torch.ones_like(sine)
        right, up, towards = (
            torch.stack(axis) for axis in ((cosine, zero, sine), (zero, one, zero), (-sine, zero, cosine))
        )
        tilt, roll = self(0.2, 0.7), self(-0.4, 0.4)  # tangents
        up, towards = _unit(up - tilt * towards), _unit(towards + tilt * up)
        right, up = _unit(right + roll * up), _unit(up - roll * right)
        return torch.stack((right, up, towards))


@dataclass(frozen=True)
class _Texture:
    """Two colours, mixed by waves that cross space: checks, dots, marble, stripes, or plain."""

    wave: Tensor  # (3, 3, N) three wave vectors
    phase: Tensor  # (3, N)
    pattern: Tensor  # (N,) 0 to 4
    sharpness: Tensor  # (N,)
    colours: Tensor  # (2, 3, N)

    @classmethod
    def draw(cls, draws: _Draws, colour: Tensor, contrast: float) -> "_Texture":
        other = draws.colour(0.8) * draws(0.1, 1)
        return cls(
            wave=torch.stack([draws.direction() * draws(0.7, 1.6) for _ in range(3)]),
            phase=draws.point(0, 1),
            pattern=draws(0, 5).long(),
            sharpness=draws(0.8, 3),
            colours=torch.stack((colour, colour + (other - colour) * draws(0, contrast))),
        )

    def at(self, point: Tensor, spread: Spread) -> Tensor:
        """Points (3, …) to colours (3, …); `spread` brings parameters (…, N) to the shape of the points."""
        wave, phase, pattern = spread(self.wave), spread(self.phase), spread(self.pattern)
        along = [_dot(wave[i], point) + phase[i] for i in range(3)]
        a, b, c = map(_wave, along)
        marble = _wave(along[1] * 0.5 + 0.4 * a + 0.3 * c)
        height = torch.where(pattern == 0, 3 * a * b * c, a)
        height = torch.where(pattern == 1, a + b + c - 0.6, height)
        height = torch.where(pattern == 2, marble, height)
        share = torch.where(pattern == 3, 0, (0.5 + spread(self.sharpness) * height).clamp(0, 1))
        colours = spread(self.colours)
        return colours[0] + (colours[1] - colours[0]) * share


@dataclass(frozen=True)
class _Cutout:
    """A flat disc, square or triangle that faces the camera, between the solid and the wall."""

    outline: Tensor  # (N,) 0 to 2
    position: Tensor  # (2, N)
    turn: Tensor  # (2, N)
    size: Tensor  # (N,) not there unless positive
    depth: Tensor  # (N,)
    colour: Tensor  # (3, N)

    @classmethod
    def draw(cls, draws: _Draws, wall: Tensor, depth: float) -> "_Cutout":
        return cls(
            outline=draws(0, 3).long(),
            position=draws.point(-1, 1, 2),
            turn=draws.direction(2),
            size=draws(-0.2, 0.25),
            depth=draws(depth - 0.1, depth),
            colour=wall + (draws.colour(0.5) * draws(0.1, 1) - wall) * draws(0.1, 0.4),
        )

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """(N, H, W), negative inside, of the points of an image."""
        position, turn, outline, size = map(_over_image, (self.position, self.turn, self.outline, self.size))
        x, y = x - position[0], y - position[1]
        x, y = x * turn[0] + y * turn[1], y * turn[0] - x * turn[1]
        square = torch.maximum(x.abs(), y.abs())
        triangle = torch.maximum(x.abs() * (sqrt(3) / 2) + y / 2, -y)
        radius = torch.where(outline == 0, _length(x, y), torch.where(outline == 1, square, triangle))
        return torch.where(size > 0, radius - size, 1)


@dataclass(frozen=True)
class _Scene:
    kind: Tensor  # (N,)
    pose: Tensor  # (3, 3, N)
    scale: Tensor  # (N,)
    centre: Tensor  # (2, N)
    depth: Tensor  # (N,) of the centre
    texture: _Texture
    light: Tensor  # (3, N) direction towards it
    tint: Tensor  # (3, N) its colour
    ambient: Tensor  # (N,)
    gloss: Tensor  # (N,)
    wall: _Texture
    wall_depth: Tensor  # (N,) in the middle of the image
    wall_slope: Tensor  # (2, N)
    falloff: Tensor  # (2, N) of the light along x and y
    cutouts: Sequence[_Cutout]  # from back to front
    noise: Tensor  # (N,)


def kinds(seed: int, index: Tensor) -> Tensor:
    """The labels (N,) of the scenes `index` (N,): places in `KINDS`."""
    return bits(seed, _TAG, index, 0) % len(KINDS)


def _draw(seed: int, index: Tensor) -> _Scene:
    draws = _Draws(seed, index)
    scale = draws(0.55, 0.85)
    # Solid and wall always differ in brightness, which of them is brighter is left to chance: shapes are easy to see,
    # but not by comparing pixels.
    bright = (draws(0, 1) < 0.5).float()
    brightness = 0.3 + 0.5 * bright + draws(-0.15, 0.15)
    wall = draws.colour(0.15) * (0.7 - 0.5 * bright + draws(-0.15, 0.15))
    return _Scene(
        kind=kinds(seed, index),
        pose=draws.pose(),
        scale=scale,
        centre=draws.point(-1, 1, 2) * (1.1 - scale),
        depth=draws(1.5, 2.5),
        texture=_Texture.draw(draws, draws.colour(0.25) * brightness, contrast=0.2),
        light=_unit(draws.point(-1, 1) + torch.tensor([[0.0], [0.4], [1.2]], device=index.device)),
        tint=1 - draws.point(0, 0.15),
        ambient=draws(0.3, 0.5),
        gloss=draws(0, 0.5),
        wall=_Texture.draw(draws, wall, contrast=0.15),
        wall_depth=draws(4.7, 5.5),
        wall_slope=draws.point(-0.4, 0.4, 2),
        falloff=draws.point(-0.5, 0.5, 2),
        cutouts=[_Cutout.draw(draws, wall, depth=3.9 - 0.1 * number) for number in range(_DISTRACTORS)],
        noise=draws(0.015, 0.035),
    )


# From contents to pixels.


@dataclass(frozen=True)
class _Hits:
    """Where R rays met the solid of their scene."""

    pixel: tuple[Tensor, Tensor, Tensor]  # scene, row, column, (R,) each
    point: Tensor  # (3, R) in the solid's coordinates
    normal: Tensor  # (3, R) in the camera's
    depth: Tensor  # (R,)


def _axis(resolution: int, device: torch.device) -> Tensor:
    """The centres of `resolution` equal cells of [−1, 1]."""
    return (torch.arange(resolution, device=device) * 2 + 1) / resolution - 1


def _over_image(parameter: Tensor) -> Tensor:
    return parameter[..., None, None]


def _pick(parameter: Tensor, number: Tensor) -> Tensor:
    """(…, N) to (…, R), as parameter[..., number] but several times faster."""
    rows = parameter[None].flatten(0, -2)
    return rows.gather(1, number.expand(len(rows), -1)).view(*parameter.shape[:-1], len(number))


def _trace(scene: _Scene, kind: int, resolution: int) -> _Hits:
    """One ray per cell of a grid for the scenes of one kind; only rays that meet the ball around the solid are made."""
    distance = tuple(KINDS.values())[kind]
    member = torch.nonzero(scene.kind == kind).squeeze(1)
    axis = _axis(resolution, member.device)
    x = (axis - scene.centre[0, member, None]) / scene.scale[member, None]
    y = (-axis - scene.centre[1, member, None]) / scene.scale[member, None]
    square = 1 - x.square()[:, None, :] - y.square()[:, :, None]
    number, row, column = torch.nonzero(square > 0, as_tuple=True)

    half_chord = square[number, row, column].sqrt()
    right, up, towards = _pick(scene.pose[..., member], number)
    start = right * x[number, column] + up * y[number, row] + towards * half_chord
    hit, way = _march(distance, start, towards, 2 * half_chord)

    number, towards = number[hit], _pick(towards, hit)
    point = _pick(start, hit) - towards * way
    normal = _normal(distance, point, _pick(scene.pose[..., member], number))
    # What is left of the way, along the ray. Near the silhouette a step of Newton's method would go too far.
    rest = distance(*point) / normal[2].clamp(min=0.1)
    member = member[number]
    return _Hits(
        pixel=(member, row[hit], column[hit]),
        point=point - towards * rest,
        normal=normal,
        depth=scene.depth[member] - scene.scale[member] * (half_chord[hit] - way - rest),
    )


def _march(distance: Solid, start: Tensor, towards: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Sphere tracing from `start` (3, R) away from the camera, up to `end` (R,): the rays that hit, and their ways."""
    ray, way = torch.arange(len(end), device=end.device), torch.zeros_like(end)
    hits, ways = [], []
    for _ in range(_ROUNDS):
        for _ in range(_STEPS_PER_ROUND):
            gap = distance(*(start - towards * way))
            way = way + gap
        inside = way < end
        hit = inside & (gap < _NEAR)
        hits.append(ray[hit])
        ways.append(way[hit])
        # Few rays need many steps: only those go on.
        on = torch.nonzero(inside & ~hit).squeeze(1)
        ray, way, end, start, towards = ray[on], way[on], end[on], _pick(start, on), _pick(towards, on)
    return torch.cat(hits), torch.cat(ways)


def _normal(distance: Solid, point: Tensor, pose: Tensor) -> Tensor:
    """The gradient (3, R) of the distance along the camera's axes."""
    x, y, z = (distance(*(point + step)) - distance(*(point - step)) for step in pose * _STRIDE)
    # What is seen faces the camera; only differences taken across an edge may say otherwise.
    return _unit(torch.stack((x, y, z.clamp(min=1e-6))))


def _shade(scene: _Scene, hits: _Hits) -> Tensor:
    """Colours (3, R): Lambert's diffuse and Blinn's specular reflection of one light."""

    def spread(parameter: Tensor) -> Tensor:
        return _pick(parameter, hits.pixel[0])

    light, ambient = spread(scene.light), spread(scene.ambient)
    diffuse = ambient + (1 - ambient) * _dot(hits.normal, light).clamp(min=0)
    halfway = _unit(torch.stack((light[0], light[1], light[2] + 1)))
    specular = _dot(hits.normal, halfway).clamp(min=0)
    for _ in range(4):
        specular = specular.square()
    return spread(scene.tint) * (scene.texture.at(hits.point, spread) * diffuse + spread(scene.gloss) * specular)


def _background(scene: _Scene, size: int) -> Tensor:
    """(3, N, H, W) colours of the wall and the cut-outs."""
    x, y = _image_plane(size, scene.kind.device)
    image = scene.wall.at(torch.stack(torch.broadcast_tensors(x, y, torch.zeros_like(x))), _over_image)
    for cutout in scene.cutouts:
        coverage = (0.5 - cutout.distance(x, y) * (size / 2)).clamp(0, 1)
        image = image + (_over_image(cutout.colour) - image) * coverage
    return image * _over_image(scene.tint)


def _brightness(scene: _Scene, size: int) -> Tensor:
    """(N, H, W): the light fades across the image, which misleads those who compare pixels."""
    x, y = _image_plane(size, scene.kind.device)
    falloff = _over_image(scene.falloff)
    return 1 + falloff[0] * x + falloff[1] * y


def _image_plane(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """x (1, 1, W) and y (1, H, 1) of the pixels' centres."""
    axis = _axis(size, device)
    return axis[None, None, :], -axis[None, :, None]


def _rgb(scene: _Scene, size: int, noise: Tensor) -> Tensor:
    """(N, 3, H, W) uint8, with four rays to a pixel of the solid."""
    solid = torch.zeros((4, len(scene.kind), 2 * size, 2 * size), device=scene.kind.device)
    for kind in range(len(KINDS)):
        hits = _trace(scene, kind, 2 * size)
        solid[:3, *hits.pixel] = _shade(scene, hits)
        solid[3, *hits.pixel] = 1
    solid = solid[..., 0::2, :] + solid[..., 1::2, :]
    solid = (solid[..., 0::2] + solid[..., 1::2]) / 4
    image = solid[:3] + _background(scene, size) * (1 - solid[3])
    image = image * _brightness(scene, size) + noise * _over_image(scene.noise)
    return (image * 255 + 0.5).clamp(0, 255).byte().transpose(0, 1).contiguous()


def _camera_noise(seed: int, index: Tensor, size: int) -> Tensor:
    """(3, N, H, W) of unit variance: sums of two 10-bit numbers, six of which are cut from the hash of a pixel."""
    pixel = torch.arange(size * size, device=index.device).view(size, size)
    hashed = bits(seed, _TAG, _over_image(index), -1, pixel)
    numbers = torch.stack([(hashed >> (10 * place)) & 1023 for place in range(6)])
    return (numbers[:3] + numbers[3:] - 1023) * (sqrt(6) / 1024)


def _geometry(scene: _Scene, size: int) -> dict[str, Tensor]:
    """Depth, normals and segmentation at the pixels' centres."""
    x, y = _image_plane(size, scene.kind.device)
    slope = _over_image(scene.wall_slope)
    depth = _over_image(scene.wall_depth) + slope[0] * x + slope[1] * y
    normals = _unit(torch.stack((*slope, torch.ones_like(slope[0])))).repeat(1, 1, size, size)
    segmentation = torch.zeros_like(depth, dtype=torch.uint8)
    for cutout in scene.cutouts:
        covered = cutout.distance(x, y) < 0
        depth = torch.where(covered, _over_image(cutout.depth), depth)
        normals[:, covered] = torch.tensor([[0.0], [0.0], [1.0]], device=x.device)
        segmentation[covered] = DISTRACTOR
    for kind in range(len(KINDS)):
        hits = _trace(scene, kind, size)
        depth[hits.pixel] = hits.depth
        normals[:, *hits.pixel] = hits.normal
        segmentation[hits.pixel] = 1 + kind
    return {
        "depth": depth[:, None],
        "normals": normals.transpose(0, 1).contiguous(),
        "segmentation": segmentation[:, None],
    }


def _render(seed: int, index: Tensor, size: int, views: Sequence[str]) -> dict[str, Tensor]:
    scene = _draw(seed, index)
    rendered = {} if set(views) == {"rgb"} else _geometry(scene, size)
    if "rgb" in views:
        rendered["rgb"] = _rgb(scene, size, _camera_noise(seed, index, size))
    return rendered


def render(seed: int, index: Tensor, *, size: int = 32, views: Sequence[str] = VIEWS) -> dict[str, Tensor]:
    """The named views of the scenes `index` (N,), each (N, channels, size, size).

    rgb           3 × uint8
    depth         1 × float32, distance from the camera plane where the image is 2 wide
    normals       3 × float32, unit vectors: x right, y up, z towards the camera
    segmentation  1 × uint8: 0 the wall, 1 + label the solid, `DISTRACTOR` the cut-outs behind it
    """
    if not set(views) <= set(VIEWS):
        raise ValueError(f"views {views!r} are not all among {VIEWS}")
    parts = [_render(seed, part, size, views) for part in torch.split(index, max(1, _PIXELS_AT_ONCE // size**2))]
    return {view: torch.cat([part[view] for part in parts]) for view in views}


class Scenes(Source):
    """The set as a source of labelled images, which are rendered whenever they are asked for."""

    labels: Tensor
    size: tuple[int, int]
    fields = (IMAGE, "depth", "normals", "segmentation")

    def __init__(self, samples: int = 10_000, *, split: str = "train", seed: int = 0, size: int = 32) -> None:
        if split not in _SPLITS:
            raise ValueError(f"split {split!r} is not one of {tuple(_SPLITS)}")
        self.name, self.classes = "scenes", tuple(KINDS)
        self.split, self.seed, self.size = split, seed, (size, size)
        self.labels = kinds(seed, torch.arange(samples) + _SPLITS[split])
        self.fingerprint = digest(f"scenes {_VERSION} {samples} {split} {seed} {size}".encode())

    def __len__(self) -> int:
        return len(self.labels)

    def id(self, index: int) -> str:
        return f"{self.split}/{index}"

    def read(self, index: int) -> dict[str, Tensor]:
        return {name: field[0] for name, field in self.batch(torch.tensor([index])).items()}

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        if bool(((index < 0) | (index >= len(self))).any()):
            raise IndexError(f"{index} reaches beyond the {len(self)} samples")
        views = {name: "rgb" if name == IMAGE else name for name in self.selected}
        rendered = render(self.seed, index + _SPLITS[self.split], size=self.size[0], views=tuple(views.values()))
        return {name: _as_field(name, rendered[view]) for name, view in views.items()}


def _as_field(name: str, view: Tensor) -> Tensor:
    """A view (N, channels, H, W) of `render` as `manyview.fields` stores it. The kind of the solid, which is its label,
    is not told: a segmentation has 1 for what stands before the wall, 2 for the wall, 3 for the solid."""
    if name == "depth":
        return (view * FIELDS["depth"].steps + 0.5).to(torch.uint16)
    if name == "normals":
        return (view * 127.5 + 128).clamp(0, 255).byte()
    if name == "segmentation":
        return torch.where(view == 0, 2, torch.where(view == DISTRACTOR, 1, 3)).to(torch.uint16)
    return view
