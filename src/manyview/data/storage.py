"""How the images of a set in files are stored: with how many channels, and with 8 or 16 bits. Some of them tell."""

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from manyview.data.decoding import SHALLOW, TIFFS, decode, header, pages
from manyview.data.source import UNREADABLE_SHARE, Unreadable, note
from manyview.errors import UserError
from manyview.fields import RGB, Pixels
from manyview.pixels import WrongChannels

if TYPE_CHECKING:
    from manyview.data.folder import ImageFiles

_TAG = 0x970BE
_LOOKED_AT = 64  # images whose headers tell
_TRIED = 16  # of them are decoded
_DARK = 0.25  # of full brightness: the brightest pixel of all has more, unless fewer bits are used than there are

_note_once = cache(note)  # a command opens a set several times


def storage(files: "ImageFiles") -> Pixels:
    """16 bits for all images where one of some has more than 8, or where a range of values is given. Complains of
    channels and ranges that do not fit now, and not in the middle of an epoch."""
    some = [(index, files.id(index).lower()) for index in files.some(_TAG)[:_LOOKED_AT].tolist()]
    camera, deep = files.camera, [index for index, id_ in some if not id_.endswith(SHALLOW) and _is_deep(files, index)]
    if len(deep) <= UNREADABLE_SHARE * len(some) and not any(_is_readable(files, index) for index in deep):
        deep = []  # so few broken ones do not decide for the others
    pixels = Pixels(camera.channels, bool(deep) or camera.value_range is not None)
    doubtful = deep or [index for index, id_ in some if pixels != RGB or id_.endswith(TIFFS)]
    if doubtful:
        _try_out(files, pixels, doubtful[:_TRIED])
    _note_pages(files, [index for index, id_ in some if id_.endswith(TIFFS)])
    return pixels


def _is_deep(files: "ImageFiles", index: int) -> bool:
    with suppress(OSError, Unreadable), files.open(index) as file:
        return header(file).deep
    return False


def _is_readable(files: "ImageFiles", index: int) -> bool:
    try:
        with files.open(index) as file:
            decode(file, Pixels(files.camera.channels, deep=True), files.camera.value_range)
    except (OSError, Unreadable) as error:
        return isinstance(error.__cause__, WrongChannels)  # an error of the set
    return True


def _note_pages(files: "ImageFiles", some: list[int]) -> None:
    for index in some:
        with suppress(OSError), files.open(index) as file:
            if (count := pages(file)) not in (1, files.camera.channels):
                _note_once(
                    f"TIFFs of '{files.name}' have several pages, such as {files.id(index)}, of which the first is "
                    f"read: --channels {count} takes {count} pages of one channel each as channels"
                )
                return


def _try_out(files: "ImageFiles", pixels: Pixels, some: list[int]) -> None:
    images, reasons, camera = [], [], files.camera
    for index in some:
        try:
            with files.open(index) as file:
                # Not as floats, which would take four times the memory.
                brightest = decode(file, pixels, camera.value_range).numpy().max()
                images.append(float(brightest) / np.iinfo(brightest.dtype).max)
        except (OSError, Unreadable) as error:
            if isinstance(error.__cause__, WrongChannels):
                raise UserError(f"{files.id(index)} in '{files.name}' does not fit: {error}") from error
            reasons.append(f"{files.id(index)} ({error})")
    if pixels.deep and not images:
        raise UserError(f"images of '{files.name}' cannot be read as they are asked for, such as {reasons[0]}")
    if pixels.deep and max(images) < _DARK:
        way_out = "say which values are black and white, such as --value-range 0 4095 for 12 bits"
        if camera.value_range is not None:
            way_out = "--value-range {:g} {:g} may be too wide".format(*camera.value_range)
        _note_once(
            f"the brightest pixel of {len(images)} images of '{files.name}' has {max(images):.1%} of full brightness: "
            f"{way_out}"
        )
