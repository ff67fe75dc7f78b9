"""The neighbours that two encoders find, side by side."""

from manyview.report.markup import Markup, join, table, tag
from manyview.report.pictures import Neighbourhood
from manyview.report.sections.neighbours import neighbour, query
from manyview.report.sections.strips import row
from manyview.report.versus import Agreement, Versus
from manyview.report.words import percent, points, signed

__all__ = ["versus"]


def versus(found: Versus) -> Markup:
    text = (
        f"Each of {found.pool:,} images was a query among the others, by either encoder. Of the {found.neighbours} "
        f"images nearest to it the two have {percent(found.common)} in common ({percent(found.by_luck)} would be "
        "luck); those are marked “both”. The first encoder's stand on the left, or above on narrow screens."
    )
    if found.agreement is None:
        text += " Without labels it cannot be said whose neighbours are better."
    text = f"{text} {found.remark}".strip()
    head = tag("div", tag("span"), *(tag("h3", name) for name in found.names), class_="versus")
    return join(
        tag("p", text, class_="note"),
        Markup() if found.agreement is None else _agreement(found.names, found.agreement),
        head,
        *(_pair(*pair) for pair in found.pairs),
    )


def _agreement(names: tuple[str, str], found: Agreement) -> Markup:
    rows = [[name, percent(share)] for name, share in zip(names, (found.first, found.second), strict=True)]
    low, high = found.interval
    better = names[0] if found.first >= found.second else names[1]
    between = signed(f"95\u202f% interval of the difference {100 * low:+.1f} to {100 * high:+.1f} points")
    if low <= 0 <= high:
        verdict = f"The labels do not tell the two apart ({between})."
    else:
        verdict = f"The neighbours found by {better} have the query's label more often, by "
        verdict += f"{points(abs(found.first - found.second)).removeprefix('+')} ({between})."
    caption = "Agreement with labels, which were not used for training"
    return join(table(caption, ["Encoder", "Neighbours with the query's label"], rows), tag("p", verdict))


def _pair(first: Neighbourhood, second: Neighbourhood) -> Markup:
    both = {sample.name for sample in first.neighbours} & {sample.name for sample in second.neighbours}
    return tag("div", row([query(first.query)]), _row(first, both), _row(second, both), class_="versus neighbours")


def _row(hood: Neighbourhood, both: set[str]) -> Markup:
    found = zip(hood.neighbours, hood.similarities, strict=True)
    return row([neighbour(hood.query, each, value, "both" if each.name in both else "") for each, value in found])
