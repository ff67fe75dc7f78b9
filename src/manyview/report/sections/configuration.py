"""What was asked for and what was found: settings, data, environment."""

from collections.abc import Mapping
from typing import Any

from manyview.data.parts import counts_in_words
from manyview.report.facts import Facts, number
from manyview.report.markup import Markup, join, table, tag
from manyview.report.words import spelled

__all__ = ["configuration", "environment", "unreadable"]

_MOST_CLASSES = 12
_MOST_UNREADABLE = 200


def configuration(facts: Facts) -> Markup:
    if not facts.config:
        return tag("p", "config.json holds no configuration.", class_="soft")
    groups = [
        table(name.capitalize(), [], [[key.replace("_", "-"), spelled(value)] for key, value in group.items()])
        for name, group in facts.config.items()
    ]
    groups.append(table("Data as found", [], _data_rows(facts.data)))
    return tag("div", *groups, class_="groups")


def _data_rows(data: Mapping[str, Any]) -> list[list[str]]:
    size, classes = data.get("size"), data.get("classes")
    names = ", ".join(map(str, classes[:_MOST_CLASSES])) if isinstance(classes, list) else ""
    more = (
        f" and {len(classes) - _MOST_CLASSES} more"
        if isinstance(classes, list) and len(classes) > _MOST_CLASSES
        else ""
    )
    counts = data.get("class_counts")
    sizes = [int(size) for each in counts if (size := number(each)) is not None] if isinstance(counts, list) else []
    return [
        ["name", spelled(data.get("name"))],
        ["samples", spelled(data.get("samples"))],
        ["size", "×".join(map(str, size)) if isinstance(size, list) else "various"],
        ["classes", f"{names}{more}" or "–"],
        ["images per class", counts_in_words(sizes) or "–"],
        ["fingerprint", spelled(data.get("fingerprint"))],
    ]


def unreadable(facts: Facts) -> Markup:
    count = len(facts.unreadable)
    text = "1 image could not be read; another" if count == 1 else f"{count:,} images could not be read; others"
    text += " took its place." if count == 1 else " took their places."
    if count > _MOST_UNREADABLE:
        text += f" The first {_MOST_UNREADABLE}; unreadable.txt lists all."
    rows = [[name, reason] for name, reason in facts.unreadable[:_MOST_UNREADABLE]]
    return join(tag("p", text, class_="note"), table("Unreadable images", ["Image", "Reason"], rows))


def environment(facts: Facts) -> Markup:
    if not facts.environment:
        return tag("p", "config.json says nothing of the environment.", class_="soft")
    rows = [["manyview", facts.version], *([str(key), spelled(value)] for key, value in facts.environment.items())]
    return tag("div", table("Where the run was made", [], rows), class_="groups")
