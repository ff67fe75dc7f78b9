"""Images, and those nearest to them."""

from manyview.report.markup import Markup, join, tag
from manyview.report.pictures import Neighbourhood, Pictures, Sample
from manyview.report.sections.strips import not_shown, strip, thumbnail
from manyview.report.words import percent

__all__ = ["neighbour", "neighbours", "query"]


def neighbours(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.neighbours:
        return not_shown(missing)
    text = f"First the query, then the images nearest to it among {pictures.pool:,}, with their cosine similarity."
    if pictures.neighbours[0].query.label is not None:
        text += " Green and ✓: the label of the query; red and ✗: another one. Labels were not used for training."
    shares = [
        f"{name} encoder {percent(g.agreement)}" for name, g in pictures.geometry.items() if g.agreement is not None
    ]
    if shares:
        text += f" Share of neighbours with the query's label, over all {pictures.pool:,} images: {', '.join(shares)}."
    return join(tag("p", text, class_="note"), *map(_neighbour_row, pictures.neighbours))


def _neighbour_row(row: Neighbourhood) -> Markup:
    found = zip(row.neighbours, row.similarities, strict=True)
    return strip([query(row.query), *(neighbour(row.query, *pair) for pair in found)], "neighbours")


def query(sample: Sample) -> Markup:
    return tag(
        "figure",
        thumbnail(sample.image, f"query {_named(sample)}", sample.name),
        tag("figcaption", tag("strong", sample.label or "query")),
        class_="first",
    )


def neighbour(query: Sample, sample: Sample, similarity: float, remark: str = "") -> Markup:
    kind, mark = "", ""
    if query.label is not None:
        kind, mark = ("same", "✓ ") if sample.label == query.label else ("other", "✗ ")
    words = f"neighbour {_named(sample)}, similarity {similarity:.2f}"
    below = f"{similarity:.2f} {remark}".strip()
    caption = [mark, sample.label or "", Markup("<br>") if sample.label else "", below]
    return tag("figure", thumbnail(sample.image, words, sample.name), tag("figcaption", *caption), class_=kind)


def _named(sample: Sample) -> str:
    return f"{sample.name} ({sample.label})" if sample.label is not None else sample.name
