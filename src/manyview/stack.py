"""A sample as one stack of channels, all of them uint8: RGB, and behind it further images of the same place.

Depth is grey; surface normals have their x, y and z as red, green and blue (-1 is 0, 1 is 255; x points right, y up, z
to the camera); a segmentation has a grey for each kind.
"""

from collections.abc import Iterable

__all__ = ["COLOURS", "PLANES", "channels_of"]

COLOURS = 3
PLANES = {"depth": 1, "normals": 3, "segmentation": 1}  # how many channels each has


def channels_of(planes: Iterable[str]) -> int:
    """C, of a stack with these further images."""
    return COLOURS + sum(PLANES[name] for name in planes)
