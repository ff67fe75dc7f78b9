"""Views of a sample by name: parts of its colours, the whole image, and its other fields."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from manyview.errors import UserError
from manyview.fields import FIELDS, IMAGE
from manyview.views.colourspaces import SPLITS, convert

WHOLE = "RGB"


@dataclass(frozen=True)
class NamedView:
    """A field; of an image, where a colour space is named, some `channels` of that."""

    word: str  # by which `named_views` finds this view alone
    field: str
    channels: tuple[int, ...]
    space: str | None = None


def named_views(words: str) -> dict[str, NamedView]:
    """What "lab,depth" names: {"L": …, "ab": …, "depth": …}.

    Words are colour spaces, which give both of their views, one view of a colour space (`lab.L`; `L` and `ab` alone are
    those of lab), `RGB` (the whole image) and other fields of the sample (`depth`, `normals`, `segmentation`).
    """
    found: dict[str, NamedView] = {}
    for word in words.split(","):
        for name, view in _views_of(word.strip(), words).items():
            if name in found:
                raise UserError(f"--views {words} names {name} twice: leave one of them out")
            found[name] = view
    return found


def fields_of(views: Mapping[str, NamedView]) -> tuple[str, ...]:
    """The fields that the views need, in the order of the table of fields."""
    needed = {view.field for view in views.values()}
    return tuple(name for name in FIELDS if name in needed)


def split_views(fields: Mapping[str, Tensor], views: Mapping[str, NamedView]) -> dict[str, Tensor]:
    """The views (N, c, h, w) of fields (N, c, h, w), by name."""
    names = {view.space for view in views.values() if view.space is not None}
    spaces = {space: convert(fields[IMAGE], space) for space in names}
    return {
        name: fields[view.field] if view.space is None else spaces[view.space][:, list(view.channels)]
        for name, view in views.items()
    }


def _views_of(word: str, words: str) -> dict[str, NamedView]:
    if word == WHOLE:
        return {WHOLE: NamedView(WHOLE, IMAGE, (0, 1, 2))}
    if word in FIELDS and word != IMAGE:
        return {word: NamedView(word, word, tuple(range(FIELDS[word].channels)))}
    space, _, name = word.partition(".") if word not in SPLITS["lab"].views else ("lab", ".", word)
    if space not in SPLITS or (name and name not in SPLITS[space].views):
        raise UserError(
            f"--views {words}: {word!r} is no view. Take a colour space ({', '.join(SPLITS)}), one view of it (lab.L), "
            f"{WHOLE}, {', '.join(name for name in FIELDS if name != IMAGE)}, or several of them with commas between"
        )
    return {
        view: NamedView(f"{space}.{view}", IMAGE, channels, space)
        for view, channels in SPLITS[space].views.items()
        if not name or view == name
    }
