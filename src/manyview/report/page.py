"""The page: one function for each section, from what the run directory says to HTML."""

import math
import shlex
from collections.abc import Mapping
from typing import Any

from manyview.data.imbalance import counts_in_words
from manyview.diagnose.plots import RANDOM, layer_plot, line_plot, similarity_plot
from manyview.encoders.backbones import OWN
from manyview.report.facts import Comparison, Facts, number
from manyview.report.markup import Markup, join, picture, table, tag
from manyview.report.pictures import Neighbourhood, Pictures, Sample, SampleViews
from manyview.report.style import STYLE

__all__ = ["render"]

# Nothing is fetched and nothing is run, whatever a file name may try.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_METHODS = {
    "au-cl": "AU-CL",
    "au-cl-moco": "AU-CL (MoCo)",
    "cacr": "CACR",
    "cacr-moco": "CACR (MoCo)",
    "cl": "CL",
    "cmc": "CMC",
    "cmc-aug": "CMC of augmented views",
    "cmc-moco": "CMC (MoCo)",
    "hn-cl": "HN-CL",
    "hn-cl-moco": "HN-CL (MoCo)",
    "jcl": "JCL",
    "moco-v1": "MoCo v1",
    "moco-v2": "MoCo v2",
    "mv-dhel": "MV-DHEL",
    "mv-infonce": "MV-InfoNCE",
    "pvc": "Poly-view contrast",
    "simclr": "SimCLR",
    "vanilla": "Vanilla multi-key",
}
_PROTOCOLS = {
    "knn": "k nearest neighbours",
    "linear": "Linear probe on cached features",
    "mlp": "Probe with one hidden layer",
    "linear-sgd": "Linear probe, SGD with augmentation",
    "linear-adam": "Linear probe, Adam with augmentation",
}
_DIAGNOSTICS = {
    "positive": "Cosine similarity of positives",
    "spread": "Spread of the positive similarities",
    "lam": "λ, weight of the covariance",
    "information": "Mutual information of the views, at least (nats)",
}
_INFO_NCE = {"jcl", "moco-v1", "moco-v2", "vanilla"}  # whose loss has a known value before anything is learnt
_CONTRAST = {
    "entropy": "Conditional entropy of the negative weights",
    "nearest_weight": "Weight of the nearest negative",
    "effective_negatives": "Effective number of negatives",
    "effective_positives": "Effective number of positives",
    "alignment": "Alignment, squared distance of positives",
    "uniformity": "Uniformity, log mean of Gaussians of distances",
}
_MOST_VIEWS, _MOST_CLASSES = 8, 12
_MOST_UNREADABLE = 200


def render(facts: Facts, pictures: Pictures | None, missing: str | None = None) -> str:
    """The whole page. `missing` says why there are no pictures."""
    if missing is None:
        missing = "the data was not at hand when this page was written" if facts.finished else "the run is not finished"
    sections = [
        ("training", "Training", _training(facts)),
        ("evaluation", "Evaluation", _evaluation(facts)),
        ("views", "Sample views", _views(pictures, missing)),
        ("similarity", "Similarity of positives", _similarity(pictures, missing)),
        ("neighbours", "Nearest neighbours", _neighbours(pictures, missing)),
        ("configuration", "Configuration", _configuration(facts)),
    ]
    if facts.unreadable:
        sections.append(("unreadable", "Unreadable images", _unreadable(facts)))
    sections += [("environment", "Environment", _environment(facts)), ("next", "How to go on", _next(facts))]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{_title(facts)} – manyview"),
        tag("style", Markup(STYLE)),
    )
    links = tag("nav", *(tag("a", title, href=f"#{key}") for key, title, _ in sections), aria_label="Sections")
    blocks = (tag("section", tag("h2", title), content, id=key) for key, title, content in sections)
    body = tag(
        "body",
        _header(facts, links),
        tag("main", *blocks),
        tag("footer", f"Written by manyview {facts.version} from the files of the run; it needs no network."),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


# ---- the top ----


def _title(facts: Facts) -> str:
    return f"{_METHODS.get(facts.method, facts.method)} on {facts.data.get('name', 'unknown data')}"


def _header(facts: Facts, links: Markup) -> Markup:
    samples, size = number(facts.data.get("samples")), facts.setting("views", "image_size")
    line = [
        str(facts.setting("encoder", "backbone") or ""),
        f"{size} px" if size else "",
        f"{samples:,.0f} images" if samples is not None else "",
        f"batches of {facts.setting('optim', 'batch_size')}" if facts.setting("optim", "batch_size") else "",
        f"preset {facts.preset}",
        f"seed {facts.setting('run', 'seed')}",
    ]
    unfinished = Markup()
    if not facts.finished:
        steps = f"{len(facts.metrics):,} steps so far" if facts.metrics else "no step so far"
        command = tag("code", f"manyview resume {shlex.quote(str(facts.path))}")
        unfinished = tag("p", f"This run is not finished ({steps}). To go on: ", command, class_="warning")
    return tag(
        "header",
        tag("h1", _title(facts)),
        tag("p", " · ".join(part for part in line if part), class_="soft"),
        tag("p", *_verdict(facts), class_="verdict"),
        unfinished,
        tag("div", *_figures(facts), class_="figures"),
        links,
    )


def _verdict(facts: Facts) -> list[str]:
    whole = [comparison for comparison in facts.comparisons if comparison.layer is None]
    comparison = _first(facts, "knn") or next(iter(whole or reversed(facts.comparisons)), None)
    trained, random = (comparison.top1(name) if comparison else None for name in ("trained", "random"))
    if comparison is None or trained is None:
        return _not_evaluated(facts)
    protocol = "kNN" if comparison.protocol == "knn" else _PROTOCOLS.get(comparison.protocol, comparison.protocol)
    place = "" if comparison.layer is None else f" at {comparison.layer}"
    text = f"{protocol} top-1 on {comparison.data}{place}: {_percent(trained)}"
    if random is None:
        return [f"{text}. The random encoder was not measured."]
    return [f"{text} against {_percent(random)} of the random encoder, ", tag("strong", _points(trained - random)), "."]


def _first(facts: Facts, protocol: str) -> Comparison | None:
    found = (c for c in facts.comparisons if (c.protocol, c.layer) == (protocol, None))
    return next((c for c in found if c.top1("trained") is not None), None)


def _figures(facts: Facts) -> list[Markup]:
    figures = [_accuracy_figure("kNN top-1", comparison) for comparison in [_first(facts, "knn")] if comparison]
    linear = _first(facts, "linear") or _first(facts, "linear-sgd") or _first(facts, "linear-adam")
    if linear:
        figures.append(_accuracy_figure("Linear top-1", linear))
    during = facts.series("knn")
    if not figures and during[1]:
        figures.append(_figure("kNN during training", _percent(during[1][-1]), f"at step {during[0][-1]:,.0f}"))
    losses = facts.series("loss")[1]
    if losses:
        # The mean of the last 2 %: a single batch says little.
        tail = losses[-max(1, len(losses) // 50) :]
        figures.append(_figure("Loss", f"{sum(tail) / len(tail):.3f}", f"{losses[0]:.3f} in the first step"))
    if facts.seconds:
        rates = facts.series("images_per_s")[1]
        batch = number(facts.setting("optim", "batch_size")) or 0.0
        waits = facts.series("wait")[1]
        wait = f"{sum(waits) / len(waits):.1%} of the time waiting for data" if waits else ""
        figures.append(
            _figure("Images per second", f"{len(rates) * batch / facts.seconds:,.0f}", wait.replace("%", "\u202f%"))
        )
        figures.append(
            _figure("Training time", _duration(facts.seconds), f"{len(facts.metrics):,} steps{_epochs(facts)}")
        )
    return figures


def _accuracy_figure(name: str, comparison: Comparison) -> Markup:
    trained, random = comparison.top1("trained"), comparison.top1("random")
    assert trained is not None
    against = "random encoder not measured" if random is None else f"random encoder {_percent(random)}"
    return _figure(name, _percent(trained), against)


def _figure(name: str, value: str, note: str) -> Markup:
    return tag("div", tag("span", name), tag("b", value), tag("span", note), class_="figure")


def _epochs(facts: Facts) -> str:
    epochs = facts.series("epoch")[1]
    return f" · {epochs[-1]:,.1f} epochs" if epochs else ""


# ---- sections ----


def _training(facts: Facts) -> Markup:
    if not facts.metrics:
        return tag("p", "No step has been recorded yet.", class_="soft")
    plots = [
        line_plot(
            "loss", *facts.series("loss"), title="Loss", smoothed=True, log_if_wide=True, reference=_chance(facts)
        )
    ]
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
    samples, data, views, t_pos, t_neg = (_value(facts.contrast.get(key)) for key in keys)
    set_up = (
        f"Contrast watched on {samples} images of {data}, with the same {views} views of each, t⁺ = {t_pos} and "
        f"t⁻ = {t_neg} for any method. "
    )
    return (set_up if facts.contrast else "") + (
        "A view's positives are the other views of its image, of which far ones weigh most; its negatives are the "
        "other images of a batch, of which near ones weigh most. Entropy is at its maximum when no negative is nearer "
        "than the others: images are spread evenly, or all look alike, which uniformity tells apart (lower is more "
        "spread). An effective number is that of equal weights with the same entropy."
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


def _chance(facts: Facts) -> tuple[str, float] | None:
    """The InfoNCE of an encoder that tells nothing apart from the K negatives of its queue."""
    size = number(facts.setting("method", "queue_size")) if facts.method in _INFO_NCE else None
    return (f"chance, log(K + 1) = {math.log1p(size):.2f}", math.log1p(size)) if size else None


def _evaluation(facts: Facts) -> Markup:
    if not facts.comparisons:
        return tag("p", *_not_evaluated(facts), class_="soft")
    by_layer: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in facts.comparisons:
        if each.layer is not None:
            by_layer.setdefault((each.protocol, each.data, each.test_data), []).append(each)
    return join(
        *(_comparison(each) for each in facts.comparisons if each.layer is None),
        *(_layers(f"layers-{place}", layers) for place, layers in enumerate(by_layer.values())),
    )


def _comparison(comparison: Comparison) -> Markup:
    order = sorted(comparison.results, key=lambda name: (name != "trained", name))
    rows = [
        [name, _accuracy(comparison.results[name], "top1", name), _accuracy(comparison.results[name], "top5", name)]
        for name in order
    ]
    protocol = _PROTOCOLS.get(comparison.protocol, comparison.protocol)
    caption = "Accuracy on test images, with 95\u202f% bootstrap interval"
    head = tag("h3", f"{protocol} · {comparison.data}")
    settings = _settings(comparison, order)
    return join(
        head,
        table(caption, ["Encoder", "Top-1", "Top-5"], rows, class_="results"),
        _conditions(comparison, order, f"Settings: {settings}." if settings else ""),
    )


def _layers(name: str, comparisons: list[Comparison]) -> Markup:
    """One protocol on the layers of the backbone, in the order in which they were evaluated."""
    first = comparisons[0]
    encoders = sorted({each for c in comparisons for each in c.results}, key=lambda each: (each != "trained", each))
    rows = [
        [c.layer or "", *(_accuracy(c.results.get(encoder, {}), "top1", encoder) for encoder in encoders)]
        for c in comparisons
    ]
    plot = layer_plot(
        name,
        [c.layer or "" for c in comparisons],
        {encoder: [c.top1(encoder) for c in comparisons] for encoder in encoders},
        title="Top-1 by layer",
    )
    caption = "Top-1 accuracy on test images, with 95\u202f% bootstrap interval"
    return join(
        tag("h3", f"{_PROTOCOLS.get(first.protocol, first.protocol)} · {first.data} · by layer"),
        tag("figure", Markup(plot), class_="wide"),
        table(caption, ["Layer", *(encoder.capitalize() for encoder in encoders)], rows, class_="results"),
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
    return join(tag("strong", _percent(value)), tag("span", spread, class_="soft interval"), bar)


def _conditions(comparison: Comparison, order: list[str], settings: str = "") -> Markup:
    """Under which conditions the figures were obtained."""
    result = comparison.results[order[0]]
    counts = [
        f"{value:,.0f} {what}"
        for key, what in (
            ("train_samples", "images to fit on"),
            ("test_samples", "to test on"),
            ("classes", "classes"),
            ("unreadable", "unreadable images left out"),
        )
        if (value := number(result.get(key)))
    ]
    sentences = [
        f"Tested on {comparison.test_data}.",
        f"{', '.join(counts)}." if counts else "",
        f"Images: {result['preprocess']}." if result.get("preprocess") else "",
        settings,
    ]
    return tag("p", " ".join(sentence for sentence in sentences if sentence), class_="note")


def _settings(comparison: Comparison, order: list[str]) -> str:
    """Each setting once, unless the encoders differ in it (the chosen regularisation does)."""
    groups = {name: group for name in order if isinstance(group := comparison.results[name].get("settings"), dict)}
    written = []
    for key in dict.fromkeys(key for group in groups.values() for key in group):
        values = {name: _value(group.get(key)) for name, group in groups.items()}
        one = set(values.values())
        text = one.pop() if len(one) == 1 else ", ".join(f"{value} ({name})" for name, value in values.items())
        written.append(f"{key.replace('_', ' ')} {text}")
    return "; ".join(written)


def _views(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.views:
        return _not_shown(missing)
    count = len(pictures.views[0].views)
    shown = f", the first {_MOST_VIEWS} of {count}" if count > _MOST_VIEWS else ""
    text = (
        f"Each row is one image of {pictures.source}: first as it is, then its views as the encoder meets them{shown}."
    )
    return join(tag("p", text, class_="note"), *map(_view_row, pictures.views))


def _view_row(row: SampleViews) -> Markup:
    views = row.views[:_MOST_VIEWS]
    original = tag("figure", _thumbnail(row.sample.image, f"original {row.sample.name}"), class_="first")
    shown = [tag("figure", _thumbnail(view, f"view {n} of {row.sample.name}")) for n, view in enumerate(views, 1)]
    return _strip([original, *shown])


def _similarity(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.geometry:
        return _not_shown(missing)
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
                _signed, (f"{g.separation:.3f}", f"{g.alignment:.3f}", f"{g.uniformity:.2f}", f"{g.effective_rank:.1f}")
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


def _neighbours(pictures: Pictures | None, missing: str) -> Markup:
    if pictures is None or not pictures.neighbours:
        return _not_shown(missing)
    text = f"First the query, then the images nearest to it among {pictures.pool:,}, with their cosine similarity."
    if pictures.neighbours[0].query.label is not None:
        text += " Green and ✓: the label of the query; red and ✗: another one. Labels were not used for training."
    shares = [
        f"{name} encoder {_percent(g.agreement)}" for name, g in pictures.geometry.items() if g.agreement is not None
    ]
    if shares:
        text += f" Share of neighbours with the query's label, over all {pictures.pool:,} images: {', '.join(shares)}."
    return join(tag("p", text, class_="note"), *map(_neighbour_row, pictures.neighbours))


def _neighbour_row(row: Neighbourhood) -> Markup:
    query = tag(
        "figure",
        _thumbnail(row.query.image, f"query {_named(row.query)}", row.query.name),
        tag("figcaption", tag("strong", row.query.label or "query")),
        class_="first",
    )
    return _strip(
        [query, *(_neighbour(row.query, *pair) for pair in zip(row.neighbours, row.similarities, strict=True))],
        "neighbours",
    )


def _neighbour(query: Sample, sample: Sample, similarity: float) -> Markup:
    kind, mark = "", ""
    if query.label is not None:
        kind, mark = ("same", "✓ ") if sample.label == query.label else ("other", "✗ ")
    words = f"neighbour {_named(sample)}, similarity {similarity:.2f}"
    caption = [mark, sample.label or "", Markup("<br>") if sample.label else "", f"{similarity:.2f}"]
    return tag("figure", _thumbnail(sample.image, words, sample.name), tag("figcaption", *caption), class_=kind)


def _configuration(facts: Facts) -> Markup:
    if not facts.config:
        return tag("p", "config.json holds no configuration.", class_="soft")
    groups = [
        table(name.capitalize(), [], [[key.replace("_", "-"), _value(value)] for key, value in group.items()])
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
        ["name", _value(data.get("name"))],
        ["samples", _value(data.get("samples"))],
        ["size", "×".join(map(str, size)) if isinstance(size, list) else "various"],
        ["classes", f"{names}{more}" or "–"],
        ["images per class", counts_in_words(sizes) or "–"],
        ["fingerprint", _value(data.get("fingerprint"))],
    ]


def _unreadable(facts: Facts) -> Markup:
    count = len(facts.unreadable)
    text = "1 image could not be read; another" if count == 1 else f"{count:,} images could not be read; others"
    text += " took its place." if count == 1 else " took their places."
    if count > _MOST_UNREADABLE:
        text += f" The first {_MOST_UNREADABLE}; unreadable.txt lists all."
    rows = [[name, reason] for name, reason in facts.unreadable[:_MOST_UNREADABLE]]
    return join(tag("p", text, class_="note"), table("Unreadable images", ["Image", "Reason"], rows))


def _environment(facts: Facts) -> Markup:
    if not facts.environment:
        return tag("p", "config.json says nothing of the environment.", class_="soft")
    rows = [["manyview", facts.version], *([str(key), _value(value)] for key, value in facts.environment.items())]
    return tag("div", table("Where the run was made", [], rows), class_="groups")


def _next(facts: Facts) -> Markup:
    run = shlex.quote(str(facts.path))
    shell = "\n".join(
        [
            _command(facts, "evaluate knn"),
            _command(facts, "evaluate linear"),
            f"{_command(facts, 'embed')} --out features.npz",
            f"manyview export {run} --format {_format(facts)} --out exported.safetensors",
        ]
    )
    python = "\n".join(
        [
            "import manyview",
            f"encoder = manyview.load({str(facts.path)!r})  # frozen; normalisation inside",
            "features = encoder(images)  # (N, 3, H, W), uint8 or [0, 1]",
        ]
    )
    return join(
        tag("h3", "On the command line"),
        tag("pre", tag("code", shell), tabindex="0"),
        tag("h3", "In Python"),
        tag("pre", tag("code", python), tabindex="0"),
    )


def _format(facts: Facts) -> str:
    """timm's names of the weights, where timm has the same network."""
    backbone, stem, norm = (facts.setting("encoder", name) for name in ("backbone", "stem", "norm"))
    return "timm" if (stem, norm) == ("standard", "batch") and backbone not in OWN else "safetensors"


# ---- small parts ----


def _command(facts: Facts, verb: str) -> str:
    data = facts.setting("data", "data") or facts.data.get("name") or "DATA"
    return f"manyview {verb} {shlex.quote(str(facts.path))} --data {shlex.quote(str(data))}"


def _not_evaluated(facts: Facts) -> list[str]:
    if not facts.finished:
        return ["Not evaluated yet: the encoder is written at the end of the run."]
    return ["Not evaluated yet: ", tag("code", _command(facts, "evaluate knn")), " tells what the encoder has learnt."]


def _not_shown(missing: str) -> Markup:
    return tag("p", f"Not shown: {missing}.", class_="soft")


def _strip(cells: list[Markup], class_: str = "") -> Markup:
    columns = f"grid-template-columns: minmax(0, 1fr) 2px repeat({len(cells) - 1}, minmax(0, 1fr))"
    return tag("div", *cells, class_=f"strip {class_}".strip(), style=columns)


def _thumbnail(image: Any, alt: str, title: str = "") -> Markup:
    attributes = {"title": title} if title else {}
    return picture(image, alt, class_="pixels" if max(image.shape[-2:]) <= 64 else "", **attributes)


def _named(sample: Sample) -> str:
    return f"{sample.name} ({sample.label})" if sample.label is not None else sample.name


def _value(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return str(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u202f%"


def _points(difference: float) -> str:
    return _signed(f"{100 * difference:+.1f} points")


def _signed(text: str) -> str:
    return text.replace("-", "−")


def _duration(seconds: float) -> str:
    whole = round(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.1f} s"
