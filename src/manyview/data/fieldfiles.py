"""Depth, segmentation and normals in files: which file belongs to which image, and what it holds."""

import math
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from manyview.data.normals import KINECT, Intrinsics, normals_from_depth
from manyview.data.source import Unreadable
from manyview.errors import UserError, one_line
from manyview.fields import FIELDS, IMAGE
from manyview.pixels import Range

OTHERS = tuple(name for name in FIELDS if name != IMAGE)
_LARGEST = 65_535
_GREY = ("1", "L", "I", "I;16", "I;16B", "I;16L")


@dataclass(frozen=True)
class Camera:
    """What took the images: metres per unit of a depth file, and the intrinsics `fx,fy,cx,cy` in pixels of the images
    (Kinect's, scaled to the images, unless given); how many channels an image has, and which values of a file are black
    and white, where they are not the least and the most that it can hold."""

    depth_scale: float = 0.001
    intrinsics: str | None = None
    channels: int = field(default=3, repr=False)  # the text of the others is part of fingerprints
    value_range: Range | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: Any) -> "Camera":
        """That of flags, or of the configuration of a run."""
        return cls(settings.depth_scale, settings.intrinsics, settings.channels, settings.value_range)

    @property
    def mark(self) -> tuple[bytes, ...]:
        """What fingerprints of images depend on; nothing for RGB as it is stored."""
        asked = (self.channels, self.value_range)
        return () if asked == (3, None) else (repr(asked).encode(),)

    def __post_init__(self) -> None:
        if not 0 < self.depth_scale < math.inf:
            raise UserError(f"--depth-scale {self.depth_scale:g} must be a finite number greater than 0")
        if self.value_range is not None and not -math.inf < self.value_range[0] < self.value_range[1] < math.inf:
            low, high = self.value_range
            raise UserError(f"--value-range {low:g} {high:g}: black, the first, must be less than white, the second")
        if self.intrinsics is not None:
            Intrinsics.parse(self.intrinsics, 1, 1)  # complains


KINECT_MM = Camera()


def key_and_field(path: str) -> tuple[str, str]:
    """a/0001.depth.png is the depth of a/0001; any other file belongs to an image.

    The key ends at the first dot of the base name, as WebDataset has it.
    """
    directory, slash, base = path.rpartition("/")
    start, *endings = base.split(".")
    field = endings[0].lower() if len(endings) == 2 else ""
    return directory + slash + start, field if field in OTHERS else IMAGE


def open_field(file: IO[bytes], field: str, where: str, *, whole: bool) -> Image.Image:
    """The image in a file, or its header alone; one that cannot hold the field is a `UserError`, in which `where` names
    the file. Raises `Unreadable`."""
    try:
        image = Image.open(file, formats=("PNG", "TIFF", "PPM", "BMP", "JPEG", "WEBP"))
        if whole:
            image.load()
    except Exception as error:  # Pillow fails in a dozen ways on broken files, and all of them mean the same
        reason = "not an image of a known format" if isinstance(error, UnidentifiedImageError) else str(error)
        raise Unreadable(f"its {field} cannot be read ({one_line(reason)})") from error
    if image.mode == "F":
        raise UserError(f"{where} holds floating-point numbers: write whole numbers of 8 or 16 bits")
    if field == "normals":
        if image.mode in _GREY:
            raise UserError(f"{where} has no colours: normals are stored as RGB, x, y and z from 0 (-1) to 255 (1)")
    elif image.mode not in (*_GREY, "P") or (image.mode == "P" and field == "depth"):
        raise UserError(
            f"{where} is a colour image ({image.mode}): {field} has one channel of 8 or 16 bits, so convert it"
        )
    return image


def decode_field(file: IO[bytes], field: str, camera: Camera, where: str) -> Tensor:
    """(c, H, W) as `manyview.fields` stores it: see `open_field`."""
    image = open_field(file, field, where, whole=True)
    if field == "normals":
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    numbers = np.array(image).astype(np.int64)
    if field == "depth":
        if camera.depth_scale != 1 / FIELDS["depth"].steps:
            numbers = np.rint(numbers * (camera.depth_scale * FIELDS["depth"].steps)).astype(np.int64)
        numbers[(numbers < 0) | (numbers > _LARGEST)] = 0  # beyond 65 m nothing is known
    elif numbers.min() < 0 or numbers.max() > _LARGEST:
        raise UserError(f"{where} has class {numbers.max()}: at most {_LARGEST:,} are possible, so number them anew")
    return torch.from_numpy(numbers.astype(np.uint16))[None]


def normals_of(depth: Tensor, camera: Camera) -> Tensor:
    """Normals (3, H, W) uint8 of a depth (1, H, W) uint16; unknown where the depth is."""
    height, width = depth.shape[-2:]
    intrinsics = Intrinsics.parse(camera.intrinsics, width, height) if camera.intrinsics else KINECT
    normals = normals_from_depth(depth[0].float() / FIELDS["depth"].steps, intrinsics)
    stored = (normals * FIELDS["normals"].steps + FIELDS["normals"].steps).round().clamp(0, 255).byte()
    return torch.where((normals == 0).all(0), 0, stored)
