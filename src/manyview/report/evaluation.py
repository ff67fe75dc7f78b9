"""Results of evaluations, beside those of the random encoder."""

from collections.abc import Iterable

from manyview.diagnose.facts import Comparison, Facts
from manyview.diagnose.words import measured, spelled
from manyview.evaluate.pixels import NAME as PIXELS
from manyview.evaluate.pixels import SIDE
from manyview.evaluate.result import Metric
from manyview.report.html import Markup, join, note, table, tag
from manyview.report.plots import layer_plot

_CAPTION = "On test images, with 95\u202f% interval"
_COUNTS = {
    "train_samples": "training images",
    "test_samples": "test images",
    "classes": "classes",
    "unreadable": "unreadable images skipped",
}


def not_evaluated(facts: Facts) -> list[str]:
    if not (facts.finished or facts.metrics):
        return ["Not evaluated yet. The run has not begun."]
    return ["Not evaluated yet. To evaluate it: ", tag("code", facts.evaluation)]


def evaluation(facts: Facts) -> Markup:
    if not facts.comparisons:
        return tag("p", *not_evaluated(facts), class_="soft")
    parts: dict[tuple[str, str, str, bool], list[Comparison]] = {}
    for each in facts.comparisons:
        if each.layer is not None:
            kind = each.title, each.shared.data, each.shared.test_data, each.of_views
            parts.setdefault(kind, []).append(each)
    return join(
        *(_comparison(each) for each in facts.comparisons if each.layer is None),
        *(_parts(f"layers-{place}", of_one_kind) for place, of_one_kind in enumerate(parts.values())),
    )


def _comparison(comparison: Comparison) -> Markup:
    results = {name: comparison.results[name].result for name in _ordered(comparison.results)}
    metrics = list(dict.fromkeys(name for result in results.values() for name in result.metrics))
    rows = [[name, *(_bar(result.metrics.get(each), name) for each in metrics)] for name, result in results.items()]
    return join(
        tag("h3", f"{comparison.title} · {comparison.shared.data}"),
        table(_CAPTION, ["Encoder", *metrics], rows, class_="results"),
        _conditions(comparison, list(results), settings=True),
    )


def _parts(name: str, comparisons: list[Comparison]) -> Markup:
    """One protocol on the layers of the backbone or on single views, in the order in which they were evaluated."""
    first = comparisons[0]
    kind = "view" if first.of_views else "layer"
    encoders = _ordered({each for c in comparisons for each in c.results})
    found = {encoder: [c.metric(encoder) for c in comparisons] for encoder in encoders}
    rows = [[c.layer or "", *(_bar(c.metric(encoder), encoder) for encoder in encoders)] for c in comparisons]
    figures = []
    if not first.of_views:  # views have no order that a line could follow
        plot = layer_plot(name, [c.layer or "" for c in comparisons], found, title=f"{first.headline} by layer")
        figures.append(tag("figure", Markup(plot), class_="wide"))
    return join(
        tag("h3", f"{first.title} · {first.shared.data} · by {kind}"),
        *figures,
        table(
            f"{first.headline}. {_CAPTION}", [kind.capitalize(), *map(str.capitalize, encoders)], rows, class_="results"
        ),
        _conditions(first, [encoder for encoder in encoders if encoder in first.results]),
    )


def _ordered(encoders: Iterable[str]) -> list[str]:
    return sorted(encoders, key=lambda name: (name != "trained", name))


def _bar(metric: Metric | None, encoder: str) -> Markup:
    """The value with its interval; of a share, also a bar."""
    if metric is None:
        return Markup("–")
    ends = [measured(metric, end) for end in metric.interval or ()]
    spread = f" ({' – '.join(ends)})" if ends else ""
    share = f"width: {100 * min(max(metric.value, 0.0), 1.0):.2f}%"
    bar = tag("span", tag("i", style=share), class_="bar trained" if encoder == "trained" else "bar")
    parts = tag("strong", measured(metric)), tag("span", spread, class_="soft interval")
    return join(*parts, bar if metric.unit == "%" else Markup())


def _conditions(comparison: Comparison, order: list[str], *, settings: bool = False) -> Markup:
    """Under which conditions the numbers were obtained."""
    result = comparison.results[order[0]].result
    known = {**result.facts, "unreadable": result.unreadable}
    counts = [f"{known[key]:,.0f} {what}" for key, what in _COUNTS.items() if known.get(key)]
    fitted, used = result.facts.get("fitted"), _settings(comparison, order) if settings else ""
    sentences = [
        f"Tested on {comparison.shared.test_data}.",
        f"{', '.join(counts)}." if counts else "",
        f"Preprocessing: {result.preprocess}." if result.preprocess else "",
        "" if fitted is None else f"On the training images: {measured(result.main, fitted)} ({order[0]} encoder).",
        f"Settings: {used}." if used else "",
        f"Raw pixels are those images, averaged down to at most {SIDE}×{SIDE}." if PIXELS in order else "",
    ]
    return note(" ".join(sentence for sentence in sentences if sentence))


def _settings(comparison: Comparison, order: list[str]) -> str:
    """Each setting once, unless the encoders differ in it (the chosen regularisation does)."""
    records = {name: comparison.results[name] for name in order}
    used = {name: {**record.settings, **record.result.facts} for name, record in records.items()}
    written = []
    for key in dict.fromkeys(key for each in used.values() for key in each if key not in {*_COUNTS, "fitted"}):
        values = {name: spelled(each.get(key)) for name, each in used.items()}
        one = set(values.values())
        text = one.pop() if len(one) == 1 else ", ".join(f"{value} ({name})" for name, value in values.items())
        written.append(f"{key.replace('_', ' ')} {text}")
    return "; ".join(written)
