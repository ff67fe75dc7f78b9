"""Rows of small images."""

from typing import Any

from manyview.report.markup import Markup, picture, tag

__all__ = ["not_shown", "row", "strip", "thumbnail"]


_WIDTH, _CELL = 900, 150  # px


def not_shown(missing: str) -> Markup:
    return tag("p", f"Not shown: {missing}.", class_="soft")


def row(cells: list[Markup]) -> Markup:
    return tag("div", *cells, class_="strip", style=f"grid-template-columns: repeat({len(cells)}, minmax(0, 1fr))")


def strip(cells: list[Markup], class_: str = "") -> Markup:
    columns = f"grid-template-columns: minmax(0, 1fr) 2px repeat({len(cells) - 1}, minmax(0, 1fr))"
    width = f"max-width: min(100%, {min(_WIDTH, _CELL * len(cells))}px)"  # a few small images need not fill the page
    return tag("div", *cells, class_=f"strip {class_}".strip(), style=f"{columns}; {width}")


def thumbnail(image: Any, alt: str, title: str = "") -> Markup:
    attributes = {"title": title} if title else {}
    return picture(image, alt, class_="pixels" if max(image.shape[-2:]) <= 64 else "", **attributes)
