"""Results of evaluations, beside those of the random encoder."""

from collections.abc import Mapping
from typing import Any

from manyview.diagnose.facts import Comparison, Facts, number
from manyview.diagnose.words import percent, spelled
from manyview.report.html import Markup, join, note, table, tag
from manyview.report.plots import layer_plot

__all__ = ["evaluation", "not_evaluated"]


def not_evaluated(facts: Facts) -> list[str]:
    if not facts.finished:
        return ["Not evaluated yet. The encoder is written at the end of the run."]
    return ["Not evaluated yet. To evaluate it: ", tag("code", facts.command("evaluate knn"))]


def evaluation(facts: Facts) -> Markup:
    if not facts.comparisons:
        return tag("p", *not_evaluated(facts), class_="soft")
    parts: dict[tuple[str, str, str, bool], list[Comparison]] = {}
    for each in facts.comparisons:
        if each.layer is not None:
            parts.setdefault((each.protocol, each.data, each.test_data, each.of_views), []).append(each)
    return join(
        *(_comparison(each) for each in facts.comparisons if each.layer is None),
        *(_parts(f"layers-{place}", of_one_kind) for place, of_one_kind in enumerate(parts.values())),
    )


def _comparison(comparison: Comparison) -> Markup:
    order = sorted(comparison.results, key=lambda name: (name != "trained", name))
    rows = [
        [name, _accuracy(comparison.results[name], "top1", name), _accuracy(comparison.results[name], "top5", name)]
        for name in order
    ]
    caption = "Accuracy on test images, with 95\u202f% bootstrap interval"
    head = tag("h3", f"{comparison.title} · {comparison.data}")
    settings = _settings(comparison, order)
    return join(
        head,
        table(caption, ["Encoder", "Top-1", "Top-5"], rows, class_="results"),
        _conditions(comparison, order, f"Settings: {settings}." if settings else ""),
    )


def _parts(name: str, comparisons: list[Comparison]) -> Markup:
    """One protocol on the layers of the backbone or on single views, in the order in which they were evaluated."""
    first = comparisons[0]
    kind = "view" if first.of_views else "layer"
    encoders = sorted({each for c in comparisons for each in c.results}, key=lambda each: (each != "trained", each))
    rows = [
        [c.layer or "", *(_accuracy(c.results.get(encoder, {}), "top1", encoder) for encoder in encoders)]
        for c in comparisons
    ]
    figures = []
    if not first.of_views:  # views have no order that a line could follow
        plot = layer_plot(
            name,
            [c.layer or "" for c in comparisons],
            {encoder: [c.top1(encoder) for c in comparisons] for encoder in encoders},
            title="Top-1 by layer",
        )
        figures.append(tag("figure", Markup(plot), class_="wide"))
    caption = "Top-1 accuracy on test images, with 95\u202f% bootstrap interval"
    return join(
        tag("h3", f"{first.title} · {first.data} · by {kind}"),
        *figures,
        table(caption, [kind.capitalize(), *(encoder.capitalize() for encoder in encoders)], rows, class_="results"),
        _conditions(first, [encoder for encoder in encoders if encoder in first.results]),
    )


def _accuracy(result: Mapping[str, Any], key: str, encoder: str) -> Markup:
    value = number(result.get(key))
    if value is None:
        return Markup("–")
    interval = result.get(f"{key}_interval")
    ends = [number(end) for end in interval] if isinstance(interval, list) else []
    spread = f" ({ends[0]:.1%} – {ends[1]:.1%})".replace("%", "\u202f%") if len(ends) == 2 and None not in ends else ""
    share = f"width: {100 * min(max(value, 0.0), 1.0):.2f}%"
    bar = tag("span", tag("i", style=share), class_="bar trained" if encoder == "trained" else "bar")
    return join(tag("strong", percent(value)), tag("span", spread, class_="soft interval"), bar)


def _conditions(comparison: Comparison, order: list[str], settings: str = "") -> Markup:
    """Under which conditions the figures were obtained."""
    result = comparison.results[order[0]]
    counts = [
        f"{value:,.0f} {what}"
        for key, what in (
            ("train_samples", "training images"),
            ("test_samples", "test images"),
            ("classes", "classes"),
            ("unreadable", "unreadable images skipped"),
        )
        if (value := number(result.get(key)))
    ]
    fitted = number(result.get("train_top1"))
    sentences = [
        f"Tested on {comparison.test_data}.",
        f"{', '.join(counts)}." if counts else "",
        f"Preprocessing: {result['preprocess']}." if result.get("preprocess") else "",
        "" if fitted is None else f"On the training images: {percent(fitted)} ({order[0]} encoder).",
        settings,
    ]
    return note(" ".join(sentence for sentence in sentences if sentence))


def _settings(comparison: Comparison, order: list[str]) -> str:
    """Each setting once, unless the encoders differ in it (the chosen regularisation does)."""
    groups = {name: group for name in order if isinstance(group := comparison.results[name].get("settings"), dict)}
    written = []
    for key in dict.fromkeys(key for group in groups.values() for key in group):
        values = {name: spelled(group.get(key)) for name, group in groups.items()}
        one = set(values.values())
        text = one.pop() if len(one) == 1 else ", ".join(f"{value} ({name})" for name, value in values.items())
        written.append(f"{key.replace('_', ' ')} {text}")
    return "; ".join(written)
