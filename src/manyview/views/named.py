"""Views of a sample by name: parts of its colours, the whole image, and further images of the same place."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from manyview.errors import UserError
from manyview.stack import COLOURS, PLANES
from manyview.views.colourspaces import SPLITS, convert

__all__ = ["NamedView", "named_views", "planes_of", "split_views"]

WHOLE = "RGB"


@dataclass(frozen=True)
class NamedView:
    """Some `channels` of the colour space `space`, or of the sample's stack where that is None."""

    word: str  # by which `named_views` finds this view alone
    space: str | None
    channels: tuple[int, ...]


def named_views(words: str) -> dict[str, NamedView]:
    """What "lab,depth" names: {"L": …, "ab": …, "depth": …}.

    Words are colour spaces, which give both of their views, one view of a colour space (`lab.L`; `L` and `ab` alone are
    those of lab), `RGB` (the whole image) and further images of the sample (`depth`, `normals`, `segmentation`).
    """
    found: dict[str, NamedView] = {}
    for word in words.split(","):
        for name, view in _views_of(word.strip(), words).items():
            if name in found:
                raise UserError(f"--views {words} names {name} twice: leave one of them out")
            found[name] = view
    below = COLOURS
    for name in planes_of(found):
        found[name] = NamedView(name, None, tuple(range(below, below + PLANES[name])))
        below += PLANES[name]
    return found


def planes_of(views: Mapping[str, NamedView]) -> tuple[str, ...]:
    """The further images that the views need, in the order of the stack."""
    return tuple(name for name in views if name in PLANES)


def split_views(samples: Tensor, views: Mapping[str, NamedView]) -> dict[str, Tensor]:
    """The views (N, c, h, w) of samples (N, C, h, w) in [0, 1], by name."""
    spaces = {view.space for view in views.values()}
    images = {space: samples if space is None else convert(samples[:, :COLOURS], space) for space in spaces}
    return {name: images[view.space][:, list(view.channels)] for name, view in views.items()}


def _views_of(word: str, words: str) -> dict[str, NamedView]:
    if word == WHOLE:
        return {WHOLE: NamedView(WHOLE, None, (0, 1, 2))}
    if word in PLANES:
        return {word: NamedView(word, None, ())}  # where in the stack is known when all are
    space, _, name = word.partition(".") if word not in SPLITS["lab"].views else ("lab", ".", word)
    if space not in SPLITS or (name and name not in SPLITS[space].views):
        raise UserError(
            f"--views {words}: {word!r} is no view. Take a colour space ({', '.join(SPLITS)}), one view of it (lab.L), "
            f"{WHOLE}, {', '.join(PLANES)}, or several of them with commas between"
        )
    return {
        view: NamedView(f"{space}.{view}", space, channels)
        for view, channels in SPLITS[space].views.items()
        if not name or view == name
    }
