"""Curves of the training: loss and diagnostics, contrast, learning rate and speed."""

import math

from manyview.diagnose.facts import Facts
from manyview.diagnose.words import chance_level, look, spelled
from manyview.evaluate.records import number
from manyview.report.html import Markup, join, note, tag
from manyview.report.plots import RANDOM, line_plot

_DIAGNOSTICS = {
    "positive": "Cosine similarity of positives",
    "spread": "Spread of the positive similarities",
    "lam": "λ, weight of the covariance",
    "information": "Lower bound on the mutual information of the views (nats)",
}
_LOOKS = {
    "knn": "kNN top-1 during training",
    "recognised": "Share of views recognised",
    "feature_rank": "Effective rank of the features",
}
_CONTRAST = {
    "entropy": "Conditional entropy of the negative weights",
    "nearest_weight": "Weight of the nearest negative",
    "effective_negatives": "Effective number of negatives",
    "effective_positives": "Effective number of positives",
    "alignment": "Alignment (lower is better)",
    "uniformity": "Uniformity (lower is better)",
    "variance": "Variance of the embeddings",
    "effective_rank": "Effective rank of the embeddings",
}


def training(facts: Facts) -> Markup:
    if not facts.metrics:
        return tag("p", "No step has been recorded yet.", class_="soft")
    chance = None if facts.chance is None else (f"chance, {chance_level(facts.chance)}", facts.chance.loss)
    loss = facts.series("loss")
    plots = [line_plot("loss", *loss, title="Loss", smoothed=True, log_if_wide=True, reference=chance)]
    for key in facts.diagnostics:
        title = _DIAGNOSTICS.get(key, key)
        plots.append(line_plot(f"diagnostic-{len(plots)}", *facts.series(key), title=title, smoothed=True))
    text = "Pale lines: every step. Strong lines: moving average over 2\u202f% of the steps."
    pace = tag("h3", "Learning rate and speed"), _grid(_pace(facts))
    return join(note(text), _grid(plots), _looks(facts), _contrast(facts), *pace)


def _looks(facts: Facts) -> Markup:
    """What was seen of the encoder meanwhile, with a line where it started."""
    shown = {name: title for name, title in _LOOKS.items() if facts.series(name)[0]}
    if not shown:
        return Markup()
    starts = {name: value for name in shown if (value := number(facts.start.get(name))) is not None}
    plots = [
        line_plot(
            name,
            *facts.series(name),
            title=title,
            percent=name != "feature_rank",
            reference=(f"start, {look(name, starts[name])}", starts[name]) if name in starts else None,
        )
        for name, title in shown.items()
    ]
    words = f"Dashed lines: the encoder that the run began from, {facts.began_from}. " if starts else ""
    text = f"{words}A view is recognised when its nearest neighbour among all views is of the same image."
    return join(tag("h3", "The encoder during training"), note(text), _grid(plots))


def _contrast(facts: Facts) -> Markup:
    """What was measured on fixed samples at the end of epochs."""
    shown = {key: title for key, title in _CONTRAST.items() if facts.series(key)[0]}
    if not shown:
        return Markup()
    most = _most(facts)
    plots = [
        line_plot(key, *facts.series(key), title=title, percent=key == "nearest_weight", reference=most.get(key))
        for key, title in shown.items()
    ]
    return join(tag("h3", "Contrast"), note(_contrast_words(facts)), _grid(plots))


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
    measured = (
        f"Measured on {samples} images of {data}, always with the same {views} views of each image. All methods use "
        f"t⁺ = {t_pos} and t⁻ = {t_neg} here, so runs can be compared. "
    )
    return (measured if facts.contrast else "") + (
        "The positives of a view are the other views of its image; far positives weigh most. Its negatives are the "
        "other images of a batch; near negatives weigh most. The entropy is at its maximum when all negatives are "
        "equally near. Then the images are either spread evenly (uniformity is low) or all alike (uniformity is near "
        "0). An effective number counts equal weights with the same entropy. Variance near 0 or an effective rank "
        "near 1 means that the encoder has collapsed."
    )


def _pace(facts: Facts) -> list[str]:
    rate, wait = facts.series("images_per_s"), facts.series("wait")
    return [
        line_plot("lr", *facts.series("lr"), title="Learning rate", from_zero=True),
        line_plot("rate", *rate, title="Images per second", colour=RANDOM, smoothed=True, from_zero=True),
        line_plot(
            "wait", *wait, title="Share of the time waiting for data", colour=RANDOM, smoothed=True, percent=True,
            from_zero=True,
        ),
    ]  # fmt: skip


def _grid(plots: list[str]) -> Markup:
    return tag("div", *(tag("figure", Markup(plot)) for plot in plots), class_="plots")
