"""How alike an encoder finds the views of one image, and those of two."""

from manyview.diagnose.plots import similarity_plot
from manyview.report.markup import Markup, join, table, tag
from manyview.report.pictures import Pictures
from manyview.report.sections.strips import not_shown
from manyview.report.words import signed

__all__ = ["similarity"]


def similarity(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.geometry:
        return not_shown(missing)
    plot = similarity_plot("similarity", {name: (g.same, g.different) for name, g in pictures.geometry.items()})
    count = len(next(iter(pictures.geometry.values())).same)
    text = (
        f"Features of the views of {count:,} images, less the mean feature, which would make everything look alike. "
        "A good encoder finds the views of one image alike and those of different images unlike. Separation is the "
        "probability that the views of an image are more similar than those of two images (0.5 is chance)."
    )
    rows = [
        [
            name,
            *map(
                signed, (f"{g.separation:.3f}", f"{g.alignment:.3f}", f"{g.uniformity:.2f}", f"{g.effective_rank:.1f}")
            ),
        ]
        for name, g in pictures.geometry.items()
    ]
    header = ["Encoder", "Separation ↑", "Alignment ↓", "Uniformity ↓", "Effective rank ↑"]
    return join(
        tag("p", text, class_="note"),
        tag("figure", Markup(plot), class_="wide"),
        table("Geometry of these features, scaled to unit length", header, rows),
    )
