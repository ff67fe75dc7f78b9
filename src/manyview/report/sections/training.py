"""How the training went: curves of every metric, and the pace."""

import math

from manyview.diagnose.plots import RANDOM, line_plot
from manyview.report.facts import Facts, number
from manyview.report.markup import Markup, join, tag
from manyview.report.words import chance_level, spelled

__all__ = ["training"]

_DIAGNOSTICS = {
    "positive": "Cosine similarity of positives",
    "spread": "Spread of the positive similarities",
    "lam": "λ, weight of the covariance",
    "information": "Mutual information of the views, at least (nats)",
}
_CONTRAST = {
    "entropy": "Conditional entropy of the negative weights",
    "nearest_weight": "Weight of the nearest negative",
    "effective_negatives": "Effective number of negatives",
    "effective_positives": "Effective number of positives",
    "alignment": "Alignment, squared distance of positives",
    "uniformity": "Uniformity, log mean of Gaussians of distances",
    "variance": "Variance of the embeddings",
    "effective_rank": "Effective rank of the embeddings",
}


def training(facts: Facts) -> Markup:
    if not facts.metrics:
        return tag("p", "No step has been recorded yet.", class_="soft")
    chance = None if facts.chance is None else (f"chance, {chance_level(facts.chance)}", facts.chance.loss)
    loss = facts.series("loss")
    plots = [line_plot("loss", *loss, title="Loss", smoothed=True, log_if_wide=True, reference=chance)]
    if facts.series("knn")[0]:
        knn = facts.series("knn")
        plots.append(line_plot("knn", *knn, title="kNN top-1 during training", percent=True))
    for key in facts.diagnostics:
        title = _DIAGNOSTICS.get(key, key)
        plots.append(line_plot(f"diagnostic-{len(plots)}", *facts.series(key), title=title, smoothed=True))
    note = tag("p", "Pale: each step. Strong: the mean over 2\u202f% of the steps around.", class_="note")
    return join(note, _grid(plots), _contrast(facts), tag("h3", "Pace"), _grid(_pace(facts)))


def _contrast(facts: Facts) -> Markup:
    """What was watched on fixed samples, once in an epoch."""
    shown = {key: title for key, title in _CONTRAST.items() if facts.series(key)[0]}
    if not shown:
        return Markup()
    most = _most(facts)
    plots = [
        line_plot(key, *facts.series(key), title=title, percent=key == "nearest_weight", reference=most.get(key))
        for key, title in shown.items()
    ]
    return join(tag("h3", "Contrast"), tag("p", _contrast_words(facts), class_="note"), _grid(plots))


def _most(facts: Facts) -> dict[str, tuple[str, float]]:
    """What equal weights would give."""
    entropies, views = facts.series("max_entropy")[1], number(facts.contrast.get("views"))
    most = {"effective_positives": (f"all {views - 1:.0f}", views - 1)} if views else {}
    if entropies:
        count = math.exp(entropies[-1])
        most["entropy"] = (f"maximum, log {count:.0f} = {entropies[-1]:.2f}", entropies[-1])
        most["effective_negatives"] = (f"all {count:.0f}", count)
    return most


def _contrast_words(facts: Facts) -> str:
    keys = ("samples", "data", "views", "t_pos", "t_neg")
    samples, data, views, t_pos, t_neg = (spelled(facts.contrast.get(key)) for key in keys)
    set_up = (
        f"Contrast watched on {samples} images of {data}, with the same {views} views of each, t⁺ = {t_pos} and "
        f"t⁻ = {t_neg} for any method. "
    )
    return (set_up if facts.contrast else "") + (
        "A view's positives are the other views of its image, of which far ones weigh most; its negatives are the "
        "other images of a batch, of which near ones weigh most. Entropy is at its maximum when no negative is nearer "
        "than the others: images are spread evenly, or all look alike, which uniformity tells apart (lower is more "
        "spread). An effective number is that of equal weights with the same entropy. Variance (at most 1) and "
        "effective rank are those of the images of a batch: near 0 and 1 the encoder has collapsed."
    )


def _pace(facts: Facts) -> list[str]:
    plots = [line_plot("lr", *facts.series("lr"), title="Learning rate", from_zero=True)]
    rate, wait = facts.series("images_per_s"), facts.series("wait")
    plots.append(
        line_plot("rate", *rate, title="Throughput, images per second", colour=RANDOM, smoothed=True, from_zero=True)
    )
    title = "Share of the time waiting for data"
    plots.append(line_plot("wait", *wait, title=title, colour=RANDOM, smoothed=True, percent=True, from_zero=True))
    return plots


def _grid(plots: list[str]) -> Markup:
    return tag("div", *(tag("figure", Markup(plot)) for plot in plots), class_="plots")
