"""`scenes`: a procedural image set, one solid per image, whose label is the kind of the solid.

Colour, texture, light, pose, scale, position and background are drawn independently of the kind. Everything is a pure
function of (seed, index). Only exactly rounded operations (+ − × ÷ √, comparisons, integer hashes) are used, because
sin, pow and matrix products round differently in the tail of a vector register: the pixels of a scene are the same
bits whatever the batch that it is rendered in.

The camera is orthographic and looks along −z; x points right, y up; the image spans [−1, 1]². Depth is the distance
from the camera plane in the same unit. A solid lives in its own coordinates, inside the unit ball.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi, sin, sqrt

import torch
from torch import Tensor

from manyview.counter import bits, uniform
from manyview.data.source import Source, digest

__all__ = ["KINDS", "VIEWS", "Scenes", "kinds", "render"]

Solid = Callable[[Tensor, Tensor, Tensor], Tensor]
Spread = Callable[[Tensor], Tensor]

VIEWS = ("rgb", "depth", "normals", "segmentation")

_VERSION = 1  # part of the fingerprint: raise it with every change that moves a pixel
_TAG = 0x5CE7E5  # keeps these draws apart from everybody else's
_TEST_SPLIT = 1 << 40  # the first index of the test split, beyond any training set
_OVERSAMPLING = 2  # rays per pixel and axis for RGB
_ROUNDS, _STEPS_PER_ROUND = 16, 4  # of sphere tracing
_NEAR = 1e-3  # a ray that is closer than this has hit
_STRIDE = 2e-3  # of the differences that give a normal
_PIXELS_AT_ONCE = 256 * 32 * 32  # bounds the memory, and stays close to the cache
_DISTRACTORS = 5


# Solids: signed distances, or lower bounds of them outside, in the solid's own coordinates.


def _length(*components: Tensor) -> Tensor:
    total = components[0].square()
    for component in components[1:]:
        total = total + component.square()
    return total.sqrt()


def _highest(first: Tensor, *others: Tensor) -> Tensor:
    for other in others:
        first = torch.maximum(first, other)
    return first


def _sphere(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _length(x, y, z) - 0.75


def _box(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _highest(x.abs(), y.abs(), z.abs()) - 0.56


def _cylinder(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.maximum(_length(x, z) - 0.5, y.abs() - 0.8)


def _cone(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    # The side runs from (0.72, -0.65) to (0, 0.95): its normal is (1.6, 0.72) over the side's length.
    side = sqrt(1.6**2 + 0.72**2)
    return torch.maximum(_length(x, z) * (1.6 / side) + (y - 0.95) * (0.72 / side), -0.65 - y)


def _torus(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _length(_length(x, z) - 0.7, y) - 0.25


def _capsule(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _length(x, (y.abs() - 0.64).clamp(min=0), z) - 0.34


def _tetrahedron(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _highest(x + y + z, x - y - z, y - x - z, z - x - y) / sqrt(3) - 0.33


def _star(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """A five-pointed star in the plane x, z, of even thickness."""
    x = x.abs()
    for mirror_x, mirror_z in ((cos(pi / 5), -sin(pi / 5)), (-cos(pi / 5), -sin(pi / 5))):
        behind = 2 * (x * mirror_x + z * mirror_z).clamp(min=0)
        x, z = x - behind * mirror_x, z - behind * mirror_z
    # Folded, one half of the top spike is left: its edge runs from the tip (0, 0.95) down to the notch.
    notch_x, notch_z = 0.42 * sin(pi / 5), 0.42 * cos(pi / 5)
    edge = sqrt(notch_x**2 + (0.95 - notch_z) ** 2)
    side = x.abs() * ((0.95 - notch_z) / edge) + (z - 0.95) * (notch_x / edge)
    return torch.maximum(side, y.abs() - 0.22)


def _cross(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Three bars at right angles."""
    x, y, z = x.abs(), y.abs(), z.abs()
    nearest_bar = torch.minimum(torch.maximum(x, y), torch.minimum(torch.maximum(y, z), torch.maximum(x, z)))
    return _highest(nearest_bar - 0.2, x - 0.93, y - 0.93, z - 0.93)


def _dumbbell(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    y = y.abs() - 0.58
    return torch.minimum(_length(x, y, z) - 0.39, torch.maximum(_length(x, z) - 0.15, y))


KINDS: dict[str, Solid] = {
    "sphere": _sphere,
    "box": _box,
    "cylinder": _cylinder,
    "cone": _cone,
    "torus": _torus,
    "capsule": _capsule,
    "tetrahedron": _tetrahedron,
    "star": _star,
    "cross": _cross,
    "dumbbell": _dumbbell,
}
DISTRACTOR = len(KINDS) + 1  # in a segmentation map, where 0 is the wall and 1 + label the solid


# What a scene consists of. Every parameter of N scenes is a tensor whose last dimension is N; vectors come first: (3, N).


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross_product(a: Tensor, b: Tensor) -> Tensor:
    (ax, ay, az), (bx, by, bz) = a, b
    return torch.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx))


def _unit(vector: Tensor) -> Tensor:
    return vector / _length(*vector).clamp(min=1e-9)


class _Draws:
    """Hands out the random numbers of N scenes one after another: the order of the calls is part of the set."""

    def __init__(self, seed: int, index: Tensor) -> None:
        self._scene = bits(seed, _TAG, index)
        self._count = 0

    def __call__(self, low: float, high: float) -> Tensor:
        """(N,) uniform numbers."""
        self._count += 1
        return uniform(self._scene, self._count) * (high - low) + low

    def choice(self, options: int) -> Tensor:
        """(N,) int64 in [0, options)."""
        return self(0, options).long()

    def point(self, low: float, high: float, dimensions: int = 3) -> Tensor:
        """(dimensions, N) uniform numbers."""
        return torch.stack([self(low, high) for _ in range(dimensions)])

    def direction(self, dimensions: int = 3) -> Tensor:
        """Unit vectors. A sum of three uniform numbers is near enough to a normal one to leave no preferred direction."""
        return _unit(self.point(-1, 1, dimensions) + self.point(-1, 1, dimensions) + self.point(-1, 1, dimensions))

    def frame(self) -> Tensor:
        """(3, 3, N): three orthonormal vectors, right-handed."""
        third = self.direction()
        first = _unit(_cross_product(self.direction(), third))
        return torch.stack((first, _cross_product(third, first), third))

    def colour(self, saturation: tuple[float, float], value: tuple[float, float]) -> Tensor:
        """(3, N) RGB in [0, 1] of a uniform hue."""
        hue, saturation_, value_ = self(0, 6), self(*saturation), self(*value)
        turned = torch.stack((hue, hue + 4, hue + 2))
        turned = turned - 6 * (turned / 6).floor()
        return value_ * (1 - saturation_ * (2 - (turned - 3).abs()).clamp(0, 1))


@dataclass(frozen=True)
class _Texture:
    """Two colours mixed by three waves that cross space: stripes, checks, dots, marble, or none of them."""

    waves: Tensor  # (3, 3, N) wave vectors
    phase: Tensor  # (3, N)
    pattern: Tensor  # (N,)
    sharpness: Tensor  # (N,)
    colours: Tensor  # (2, 3, N)

    @classmethod
    def draw(cls, draws: _Draws, first: Tensor, contrast: tuple[float, float]) -> "_Texture":
        second = draws.colour((0.0, 0.8), (0.1, 1.0))
        second = first + (second - first) * draws(*contrast)
        waves = draws.frame() * draws(0.7, 1.6)
        return cls(waves, draws.point(0, 1), draws.choice(5), draws(0.8, 3.0), torch.stack((first, second)))

    def at(self, point: Tensor, spread: Spread) -> Tensor:
        """(3, …) points to (3, …) colours; `spread` brings a parameter from (…, N) to the shape of the points."""
        waves, phase, pattern = spread(self.waves), spread(self.phase), spread(self.pattern)
        along = [sum(w * p for w, p in zip(wave, point)) for wave in waves]
        a, b, c = (_wave(along[i] + phase[i]) for i in range(3))
        marble = _wave(along[1] * 0.5 + 0.4 * a + 0.3 * c)
        height = torch.where(pattern == 1, 3 * a * b * c, a)
        height = torch.where(pattern == 2, a + b + c - 0.6, height)
        height = torch.where(pattern == 3, marble, height)
        mix = (0.5 + spread(self.sharpness) * height).clamp(0, 1)
        mix = torch.where(pattern == 4, 0.0, mix)
        first, second = spread(self.colours)
        return first + (second - first) * mix


def _wave(phase: Tensor) -> Tensor:
    """A triangle wave of period 1 between −1 and 1."""
    return 4 * (phase - phase.floor() - 0.5).abs() - 1


@dataclass(frozen=True)
class _Cutout:
    """A flat disc, square or triangle that faces the camera, between the solid and the wall."""

    outline: Tensor  # (N,)
    position: Tensor  # (2, N)
    turn: Tensor  # (2, N)
    size: Tensor  # (N,); none or negative: not there
    depth: Tensor  # (N,)
    colour: Tensor  # (3, N)

    @classmethod
    def draw(cls, draws: _Draws, depth: float) -> "_Cutout":
        return cls(
            outline=draws.choice(3),
            position=draws.point(-1, 1, 2),
            turn=draws.direction(2),
            size=draws(-0.2, 0.25),
            depth=draws(depth - 0.1, depth),
            colour=draws.colour((0.1, 0.7), (0.1, 0.8)),
        )

    def distance(self, x: Tensor, y: Tensor, spread: Spread) -> Tensor:
        """Signed distance of the points (…) to the outline."""
        position, turn, outline = spread(self.position), spread(self.turn), spread(self.outline)
        x, y = x - position[0], y - position[1]
        x, y = x * turn[0] + y * turn[1], y * turn[0] - x * turn[1]
        square = torch.maximum(x.abs(), y.abs())
        triangle = torch.maximum(x.abs() * (sqrt(3) / 2) + y / 2, -y)
        radius = torch.where(outline == 0, _length(x, y), torch.where(outline == 1, square, triangle))
        return torch.where(spread(self.size) > 0, radius - spread(self.size), 1.0)


@dataclass(frozen=True)
class _Scene:
    kind: Tensor  # (N,)
    frame: Tensor  # (3, 3, N): the camera's x, y, z axes in the solid's coordinates
    centre: Tensor  # (2, N)
    depth: Tensor  # (N,) of the centre
    scale: Tensor  # (N,)
    texture: _Texture
    light: Tensor  # (3, N) unit, towards the light
    tint: Tensor  # (3, N)
    ambient: Tensor  # (N,)
    gloss: Tensor  # (N,)
    wall: _Texture
    wall_depth: Tensor  # (N,)
    wall_slope: Tensor  # (2, N)
    falloff: Tensor  # (2, N) of the light on the wall
    cutouts: Sequence[_Cutout]
    noise: Tensor  # (N,)


def kinds(seed: int, index: Tensor) -> Tensor:
    """(N,) scene numbers to (N,) labels, positions in `KINDS`."""
    return bits(seed, _TAG, index, 0) % len(KINDS)


def _draw(seed: int, index: Tensor) -> _Scene:
    draws = _Draws(seed, index)
    scale = draws(0.65, 0.95)
    return _Scene(
        kind=kinds(seed, index),
        frame=draws.frame(),
        scale=scale,
        centre=draws.point(-1, 1, 2) * (1 - scale),
        depth=draws(1.5, 2.5),
        texture=_Texture.draw(draws, draws.colour((0.1, 0.9), (0.6, 1.0)), contrast=(0.05, 0.5)),
        light=_unit(draws.point(-1, 1) + torch.tensor([0.0, 0.4, 1.2], device=index.device)[:, None]),
        tint=1 - draws.point(0, 0.2),
        ambient=draws(0.2, 0.45),
        gloss=draws(0, 0.5),
        wall=_Texture.draw(draws, draws.colour((0.0, 0.7), (0.1, 0.6)), contrast=(0.05, 0.3)),
        wall_depth=draws(4.7, 5.5),
        wall_slope=draws.point(-0.4, 0.4, 2),
        falloff=draws.point(-0.25, 0.25, 2),
        cutouts=[_Cutout.draw(draws, depth=3.9 - 0.1 * number) for number in range(_DISTRACTORS)],
        noise=draws(0.01, 0.03),
    )


# Rendering.


@dataclass(frozen=True)
class _Hits:
    """Where R rays met the solid of their scene."""

    scene: Tensor  # (R,)
    row: Tensor  # (R,)
    column: Tensor  # (R,)
    point: Tensor  # (3, R) in the solid's coordinates
    normal: Tensor  # (3, R) in the camera's
    depth: Tensor  # (R,)


def _axis(resolution: int, device: torch.device) -> Tensor:
    """The centres of `resolution` equal cells of [−1, 1]."""
    return (torch.arange(resolution, device=device) * 2 + 1) / resolution - 1


def _gather(parameter: Tensor, scene: Tensor) -> Tensor:
    """(…, N) parameters to (…, R): each ray gets those of its scene. (Many times faster than indexing.)"""
    rows = parameter[None].flatten(0, -2)
    return rows.gather(1, scene.expand(len(rows), -1)).view(*parameter.shape[:-1], len(scene))


def _trace(scene: _Scene, kind: int, resolution: int) -> _Hits:
    """Sphere tracing of the rays that meet the unit ball around the solids of one kind."""
    distance = tuple(KINDS.values())[kind]
    member = torch.nonzero(scene.kind == kind).squeeze(1)
    axis = _axis(resolution, member.device)
    x = (axis - scene.centre[0, member, None]) / scene.scale[member, None]
    y = (-axis - scene.centre[1, member, None]) / scene.scale[member, None]
    room = 1 - x.square()[:, None, :] - y.square()[:, :, None]
    number, row, column = torch.nonzero(room > 0, as_tuple=True)

    half_chord = room[number, row, column].sqrt()
    frame = _gather(scene.frame[..., member], number)
    right, up, towards = frame
    entry = right * x[number, column] + up * y[number, row] + towards * half_chord
    hit, travelled = _march(distance, entry, towards, 2 * half_chord)

    frame, number = _gather(frame, hit), number[hit]
    towards = frame[2]
    point = _gather(entry, hit) - towards * travelled
    normal = _normal(distance, point, frame)
    # One Newton step, along the ray, over the rest of the way.
    rest = distance(*point) / normal[2].clamp(min=0.1)
    height = half_chord[hit] - travelled - rest
    image = member[number]
    return _Hits(
        scene=image,
        row=row[hit],
        column=column[hit],
        point=point - towards * rest,
        normal=normal,
        depth=scene.depth[image] - scene.scale[image] * height,
    )


def _march(distance: Solid, entry: Tensor, towards: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The rays that hit and how far they went, of R that start at `entry` (3, R), against `towards`, until `end` (R,)."""
    ray, travelled = torch.arange(len(end), device=end.device), torch.zeros_like(end)
    hits, ways = [], []
    for _ in range(_ROUNDS):
        for _ in range(_STEPS_PER_ROUND):
            gap = distance(*(entry - towards * travelled))
            travelled = travelled + gap
        under_way = travelled < end
        arrived = (gap < _NEAR) & under_way
        hits.append(ray[arrived])
        ways.append(travelled[arrived])
        # Few rays need many steps: the others leave.
        left = torch.nonzero(under_way & ~arrived).squeeze(1)
        ray, travelled, end = ray[left], travelled[left], end[left]
        entry, towards = _gather(entry, left), _gather(towards, left)
    return torch.cat(hits), torch.cat(ways)


def _normal(distance: Solid, point: Tensor, frame: Tensor) -> Tensor:
    """The gradient of the distance by differences, in the camera's axes (the rows of `frame`)."""
    gradient = torch.stack(
        [
            sum((distance(*(point + _STRIDE * sign * axis)) * sign for sign in (1, -1)), start=torch.zeros(()))
            for axis in frame
        ]
    )
    # What is seen faces the camera: only a difference taken across an edge may say otherwise.
    return _unit(torch.stack((gradient[0], gradient[1], gradient[2].clamp(min=1e-6))))


def _shade(scene: _Scene, hits: _Hits) -> Tensor:
    """(3, R) colours: Lambert's diffuse and Blinn's specular reflection."""

    def spread(parameter: Tensor) -> Tensor:
        return _gather(parameter, hits.scene)

    light = spread(scene.light)
    diffuse = _dot(hits.normal, light).clamp(min=0)
    ambient = spread(scene.ambient)
    halfway = _unit(torch.stack((light[0], light[1], light[2] + 1)))
    specular = _dot(hits.normal, halfway).clamp(min=0)
    for _ in range(4):
        specular = specular.square()
    albedo = scene.texture.at(hits.point, spread)
    return spread(scene.tint) * (albedo * (ambient + (1 - ambient) * diffuse) + spread(scene.gloss) * specular)


def _spread_over_image(parameter: Tensor) -> Tensor:
    return parameter[..., None, None]


def _background(scene: _Scene, size: int) -> Tensor:
    """(3, N, H, W) colours of the wall and the cut-outs."""
    spread = _spread_over_image
    axis = _axis(size, scene.kind.device)
    x, y = axis[None, None, :], -axis[None, :, None]
    falloff = spread(scene.falloff)
    lit = spread(scene.tint) * (1 + falloff[0] * x + falloff[1] * y)
    wall = scene.wall.at((x, y), spread) * lit
    for cutout in scene.cutouts:
        coverage = (0.5 - cutout.distance(x, y, spread) * (size / 2)).clamp(0, 1)
        wall = wall + (spread(cutout.colour) * lit - wall) * coverage
    return wall


def _rgb(scene: _Scene, size: int, noise: Tensor) -> Tensor:
    """(N, 3, H, W) uint8."""
    fine = size * _OVERSAMPLING
    solid = torch.zeros((4, len(scene.kind), fine, fine), device=scene.kind.device)
    for kind in range(len(KINDS)):
        hits = _trace(scene, kind, fine)
        solid[:3, hits.scene, hits.row, hits.column] = _shade(scene, hits)
        solid[3, hits.scene, hits.row, hits.column] = 1
    solid = _average(solid)
    image = solid[:3] + _background(scene, size) * (1 - solid[3])
    image = image + noise * _spread_over_image(scene.noise)
    return (image * 255 + 0.5).clamp(0, 255).byte().transpose(0, 1)


def _average(image: Tensor) -> Tensor:
    """Means of the rays of each pixel."""
    cells = [image[..., i::_OVERSAMPLING, j::_OVERSAMPLING] for i in range(_OVERSAMPLING) for j in range(_OVERSAMPLING)]
    return sum(cells[1:], start=cells[0]) / len(cells)


def _camera_noise(seed: int, index: Tensor, size: int) -> Tensor:
    """(3, N, H, W) of unit variance: the sum of two uniform numbers, cut from one hash per pixel."""
    pixel = torch.arange(size * size, device=index.device).view(size, size)
    hashed = bits(seed, _TAG, index[:, None, None], -1, pixel)
    tens = torch.stack([(hashed >> (10 * place)) & 1023 for place in range(6)]).float()
    return (tens[:3] + tens[3:] - 1023) * (sqrt(6) / 1024)


def _geometry(scene: _Scene, size: int) -> dict[str, Tensor]:
    """Depth, normals and segmentation, sampled at the pixel centres."""
    spread = _spread_over_image
    axis = _axis(size, scene.kind.device)
    x, y = axis[None, None, :], -axis[None, :, None]
    slope = spread(scene.wall_slope)
    depth = spread(scene.wall_depth) + slope[0] * x + slope[1] * y
    normals = _unit(torch.stack((*slope, torch.ones_like(slope[0])))).expand(3, *depth.shape)
    segmentation = torch.zeros_like(depth, dtype=torch.uint8)
    towards_camera = torch.tensor([0.0, 0.0, 1.0], device=axis.device)[:, None, None, None]
    for cutout in scene.cutouts:
        covered = cutout.distance(x, y, spread) < 0
        depth = torch.where(covered, spread(cutout.depth), depth)
        normals = torch.where(covered, towards_camera, normals)
        segmentation = torch.where(covered, DISTRACTOR, segmentation)
    for kind in range(len(KINDS)):
        hits = _trace(scene, kind, size)
        depth[hits.scene, hits.row, hits.column] = hits.depth
        normals[:, hits.scene, hits.row, hits.column] = hits.normal
        segmentation[hits.scene, hits.row, hits.column] = kind + 1
    return {"depth": depth[:, None], "normals": normals.transpose(0, 1), "segmentation": segmentation[:, None]}


def render(seed: int, index: Tensor, *, size: int = 32, views: Sequence[str] = VIEWS) -> dict[str, Tensor]:
    """The named views of N scenes, each (N, channels, size, size).

    rgb           3 × uint8
    depth         1 × float32, distance from the camera plane; the image is 2 wide
    normals       3 × float32, unit vectors in camera space: x right, y up, z towards the camera
    segmentation  1 × uint8: 0 wall, 1 + label on the solid, `DISTRACTOR` on the cut-outs behind it
    """
    parts = [_render(seed, part, size, views) for part in index.split(max(1, _PIXELS_AT_ONCE // size**2))]
    return {name: torch.cat([part[name] for part in parts]) for name in views}


def _render(seed: int, index: Tensor, size: int, views: Sequence[str]) -> dict[str, Tensor]:
    scene = _draw(seed, index)
    rendered = {}
    if "rgb" in views:
        rendered["rgb"] = _rgb(scene, size, _camera_noise(seed, index, size))
    if set(views) - {"rgb"}:
        rendered |= _geometry(scene, size)
    return rendered


class Scenes(Source):
    """The set as a source of labelled images: `samples` for training, or as many others for testing."""

    def __init__(self, samples: int = 10_000, *, split: str = "train", seed: int = 0, size: int = 32) -> None:
        self.name = "scenes"
        self.classes = tuple(KINDS)
        self.samples, self.split, self.seed = samples, split, seed
        self.size = (size, size)
        self._first = {"train": 0, "test": _TEST_SPLIT}[split]
        self.labels = kinds(seed, torch.arange(samples) + self._first)
        self.fingerprint = digest(f"scenes {_VERSION} {split} {seed} {samples} {size}".encode())

    def __len__(self) -> int:
        return self.samples

    def id(self, index: int) -> str:
        return f"{self.split}/{index}"

    def view(self, name: str, index: Tensor) -> Tensor:
        """One of `VIEWS` of the samples `index` (N,): (N, channels, size, size)."""
        assert self.size is not None
        return render(self.seed, index + self._first, size=self.size[0], views=(name,))[name]

    def read(self, index: int) -> Tensor:
        return self.batch(torch.tensor([index]))[0]

    def batch(self, index: Tensor) -> Tensor:
        return self.view("rgb", index)
