"""Colour spaces, and the two views that each of them splits an image into (Fig. 5 of the CMC paper).

The conversions follow scikit-image, for whole batches (…, 3, h, w) on their own device. Matrices are written out as
sums of planes, because autocast and TF32 would round a matrix product.

YDbDr, YUV, YPbPr and YCbCr say the same in other units: normalised channel by channel, only the sign of Dr differs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.errors import UserError

Conversion = Callable[[Tensor], Tensor]
Matrix = Sequence[Sequence[float]]

_XYZ = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
_WHITE = (0.95047, 1.0, 1.08883)  # XYZ of D65 for the 2° observer
_XYZ_OVER_WHITE = [[weight / white for weight in row] for row, white in zip(_XYZ, _WHITE, strict=True)]
_LUMA = (0.299, 0.587, 0.114)
_YUV = (_LUMA, (-0.14714119, -0.28886916, 0.43601035), (0.61497538, -0.51496512, -0.10001026))
_YIQ = (_LUMA, (0.59590059, -0.27455667, -0.32134392), (0.21153661, -0.52273617, 0.31119955))
_YPBPR = (_LUMA, (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_YDBDR = (_LUMA, (-0.45, -0.883, 1.333), (-1.333, 1.116, 0.217))
_YCBCR = ((65.481, 128.553, 24.966), (-37.797, -74.203, 112.0), (112.0, -93.786, -18.214))
_XYZ_OF_CIE_RGB = ((0.49, 0.31, 0.20), (0.17697, 0.81240, 0.01063), (0.0, 0.01, 0.99))  # over 0.17697
_STAINS = ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11), (0.27, 0.57, 0.78))  # RGB of haematoxylin, eosin and DAB
_DARKEST = 1e-6  # HED takes logarithms
_CUBE_ROOT_FROM = 0.008856  # the lightness of darker colours is linear


def _product(left: Matrix, right: Matrix) -> Matrix:
    product: Matrix = (torch.tensor(left, dtype=torch.float64) @ torch.tensor(right, dtype=torch.float64)).tolist()
    return product


def _inverse(matrix: Matrix) -> Matrix:
    inverse: Matrix = torch.linalg.inv(torch.tensor(matrix, dtype=torch.float64)).tolist()
    return inverse


def _transposed(matrix: Matrix) -> Matrix:
    return list(zip(*matrix, strict=True))


_CIE_RGB = [[0.17697 * weight for weight in row] for row in _product(_inverse(_XYZ_OF_CIE_RGB), _XYZ)]
_STAINS_OF_RGB = _transposed(_inverse(_STAINS))


def _mixed(x: Tensor, matrix: Matrix) -> Tensor:
    """Each new channel is a weighted sum of the three old ones."""
    red, green, blue = x.unbind(-3)
    return torch.stack([r * red + g * green + b * blue for r, g, b in matrix], -3)


def _linear(matrix: Matrix) -> Conversion:
    return lambda x: _mixed(x, matrix)


def _rgb(x: Tensor) -> Tensor:
    return x


def _ycbcr(x: Tensor) -> Tensor:
    return _mixed(x, _YCBCR) + x.new_tensor((16.0, 128.0, 128.0)).view(3, 1, 1)


def _light(x: Tensor) -> Tensor:
    """The linear intensities that sRGB values stand for."""
    return torch.where(x > 0.04045, ((x + 0.055) / 1.055).pow(2.4), x / 12.92)


def _xyz(x: Tensor) -> Tensor:
    return _mixed(_light(x), _XYZ)


def _lab(x: Tensor) -> Tensor:
    share = _mixed(_light(x), _XYZ_OVER_WHITE)
    x, y, z = torch.where(share > _CUBE_ROOT_FROM, share.pow(1 / 3), 7.787 * share + 16 / 116).unbind(-3)
    return torch.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), -3)


def _luv(x: Tensor) -> Tensor:
    x, y, z = _xyz(x).unbind(-3)
    lightness = torch.where(y > _CUBE_ROOT_FROM, 116 * y.pow(1 / 3) - 16, 903.3 * y)
    total = (x + 15 * y + 3 * z).clamp_min(1e-9)
    white_x, white_y, white_z = _WHITE
    white = white_x + 15 * white_y + 3 * white_z
    u, v = 4 * x / total - 4 * white_x / white, 9 * y / total - 9 * white_y / white
    return torch.stack((lightness, 13 * lightness * u, 13 * lightness * v), -3)


def _hsv(x: Tensor) -> Tensor:
    """Hue as a share of the colour circle, 0 for greys."""
    red, green, blue = x.unbind(-3)
    value = x.amax(-3)
    chroma = value - x.amin(-3)
    width = torch.where(chroma > 0, chroma, 1)
    from_green_or_blue = torch.where(green == value, 2 + (blue - red) / width, 4 + (red - green) / width)
    sixths = torch.where(red == value, (green - blue) / width, from_green_or_blue)
    return torch.stack(((sixths / 6).remainder(1), chroma / torch.where(value > 0, value, 1), value), -3)


def _hed(x: Tensor) -> Tensor:
    """How much of three stains of histology absorbs as much light."""
    absorbed = x.clamp_min(_DARKEST).log() / math.log(_DARKEST)
    return _mixed(absorbed, _STAINS_OF_RGB).clamp_min(0)


@dataclass(frozen=True)
class Split:
    """A colour space and how its channels are shared out among views."""

    convert: Conversion
    views: Mapping[str, tuple[int, ...]]  # the channels of each


def _first_and_rest(convert: Conversion, first: str, rest: str) -> Split:
    return Split(convert, {first: (0,), rest: (1, 2)})


SPLITS: dict[str, Split] = {
    "lab": _first_and_rest(_lab, "L", "ab"),
    "luv": _first_and_rest(_luv, "L", "uv"),
    "ydbdr": _first_and_rest(_linear(_YDBDR), "Y", "DbDr"),
    "yiq": _first_and_rest(_linear(_YIQ), "Y", "IQ"),
    "yuv": _first_and_rest(_linear(_YUV), "Y", "UV"),
    "ypbpr": _first_and_rest(_linear(_YPBPR), "Y", "PbPr"),
    "ycbcr": _first_and_rest(_ycbcr, "Y", "CbCr"),
    "rgb": _first_and_rest(_rgb, "R", "GB"),
    "cie-rgb": _first_and_rest(_linear(_CIE_RGB), "R", "GB"),
    "xyz": _first_and_rest(_xyz, "X", "YZ"),
    "hsv": _first_and_rest(_hsv, "H", "SV"),
    "hed": _first_and_rest(_hed, "H", "ED"),
}


def _named(name: str) -> Split:
    if name not in SPLITS:
        raise UserError(f"colour space {name} is not known: choose one of {', '.join(SPLITS)}")
    return SPLITS[name]


def convert(images: Tensor, name: str) -> Tensor:
    """RGB (…, 3, h, w), uint8 or floats in [0, 1] -> (…, 3, h, w) in the named space, in at least float32."""
    conversion = _named(name).convert
    if images.dtype == torch.uint8:
        return conversion(images / 255)
    return conversion(images if images.dtype == torch.float64 else images.float())


def split(images: Tensor, name: str) -> dict[str, Tensor]:
    """RGB (…, 3, h, w), uint8 or floats in [0, 1] -> the views (…, c, h, w) of the named space."""
    converted = convert(images, name)
    return {view: converted[..., list(channels), :, :] for view, channels in _named(name).views.items()}
