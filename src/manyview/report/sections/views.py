"""Samples, and the views that the encoder learnt from."""

from manyview.report.markup import Markup, join, tag
from manyview.report.pictures import Pictures, SampleViews
from manyview.report.sections.strips import not_shown, strip, thumbnail

__all__ = ["views"]

_MOST_VIEWS = 8


def views(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.views:
        return not_shown(missing)
    count = len(pictures.views[0].views)
    shown = f", the first {_MOST_VIEWS} of {count}" if count > _MOST_VIEWS else ""
    text = (
        f"Each row is one image of {pictures.source}: first as it is, then its views as the encoder meets them{shown}."
    )
    return join(tag("p", text, class_="note"), *map(_view_row, pictures.views))


def _view_row(row: SampleViews) -> Markup:
    views = row.views[:_MOST_VIEWS]
    original = tag("figure", thumbnail(row.sample.image, f"original {row.sample.name}"), class_="first")
    shown = [tag("figure", thumbnail(view, f"view {n} of {row.sample.name}")) for n, view in enumerate(views, 1)]
    return strip([original, *shown])
