"""Sections that show images: views, similarities of their features, and nearest neighbours."""

from manyview.diagnose.words import percent, signed
from manyview.report.html import Markup, join, note, picture, table, tag
from manyview.report.pictures import Neighbourhood, Pictures, Sample, SampleViews
from manyview.report.plots import similarity_plot

_MOST_VIEWS = 8
_WIDTH, _CELL = 900, 150  # px


def views(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.views:
        return _not_shown(missing)
    count = len(pictures.views[0].views)
    shown = f" The first {_MOST_VIEWS} of {count} views are shown." if count > _MOST_VIEWS else ""
    text = f"Each row is one image of {pictures.source}: the original, then its views as the encoder sees them.{shown}"
    return join(note(text), *map(_view_row, pictures.views))


def _view_row(row: SampleViews) -> Markup:
    original = tag("figure", picture(row.sample.image, f"original {row.sample.name}"), class_="first")
    shown = enumerate(row.views[:_MOST_VIEWS], 1)
    return _strip([original, *(tag("figure", picture(view, f"view {n} of {row.sample.name}")) for n, view in shown)])


def similarity(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.geometry:
        return _not_shown(missing)
    plot = similarity_plot("similarity", {name: (g.same, g.different) for name, g in pictures.geometry.items()})
    count = len(next(iter(pictures.geometry.values())).same)
    text = (
        f"Cosine similarity of features, measured on views of {count:,} images. The mean feature is subtracted first. "
        "For a good encoder, views of the same image are similar and views of different images are not. Separation "
        "is the probability that two views of one image are more similar than views of two images (chance: 0.5)."
    )
    measured = {
        name: (f"{g.separation:.3f}", f"{g.alignment:.3f}", f"{g.uniformity:.2f}", f"{g.effective_rank:.1f}")
        for name, g in pictures.geometry.items()
    }
    rows = [[name, *map(signed, numbers)] for name, numbers in measured.items()]
    header = ["Encoder", "Separation ↑", "Alignment ↓", "Uniformity ↓", "Effective rank ↑"]
    return join(
        note(text),
        tag("figure", Markup(plot), class_="wide"),
        table("The same features, scaled to unit length", header, rows),
    )


def neighbours(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.neighbours:
        return _not_shown(missing)
    text = f"Each row is a query and its nearest neighbours among {pictures.pool:,} images, with cosine similarity."
    if pictures.neighbours[0].query.label is not None:
        text += " Green ✓: same label as the query. Red ✗: another label. Labels were not used for training."
    shares = [
        f"{percent(g.agreement)} for the {name} encoder"
        for name, g in pictures.geometry.items()
        if g.agreement is not None
    ]
    if shares:
        text += f" Over all {pictures.pool:,} images, the share of neighbours with the query's label is "
        text += f"{' and '.join(shares)}."
    return join(note(text), *map(_neighbour_row, pictures.neighbours))


def _neighbour_row(row: Neighbourhood) -> Markup:
    found = zip(row.neighbours, row.similarities, strict=True)
    return _strip([query(row.query), *(neighbour(row.query, *pair) for pair in found)], "neighbours")


def query(sample: Sample) -> Markup:
    return tag(
        "figure",
        picture(sample.image, f"query {_named(sample)}", sample.name),
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
    return tag("figure", picture(sample.image, words, sample.name), tag("figcaption", *caption), class_=kind)


def row(cells: list[Markup]) -> Markup:
    return tag("div", *cells, class_="strip", style=f"grid-template-columns: repeat({len(cells)}, minmax(0, 1fr))")


def _strip(cells: list[Markup], class_: str = "") -> Markup:
    """A row whose first image is set apart."""
    columns = f"grid-template-columns: minmax(0, 1fr) 2px repeat({len(cells) - 1}, minmax(0, 1fr))"
    width = f"max-width: min(100%, {min(_WIDTH, _CELL * len(cells))}px)"  # a few small images need not fill the page
    return tag("div", *cells, class_=f"strip {class_}".strip(), style=f"{columns}; {width}")


def _named(sample: Sample) -> str:
    return f"{sample.name} ({sample.label})" if sample.label is not None else sample.name


def _not_shown(missing: str) -> Markup:
    return tag("p", f"Not shown: {missing}.", class_="soft")
