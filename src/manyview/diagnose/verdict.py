"""The main question of every run: is its encoder better than random weights, than raw pixels, than its start?"""

import math
from collections.abc import Iterable
from dataclasses import replace

from manyview.diagnose.facts import LOOKS, Comparison, Facts
from manyview.diagnose.finding import LEVELS, Finding, Level
from manyview.diagnose.words import look, percent, points, signed, with_interval
from manyview.evaluate.records import number
from manyview.evaluate.result import Interval, Metric
from manyview.evaluate.split import HELD_OUT

RIVALS = {"random": "random weights", "pixels": "raw pixels", "start": "its start"}
_CLEAR = 0.02  # of a share, however many samples there are
_SHRUNK = 0.8  # of the rank of the features
_FEW_EPOCHS = 20
_LABEL_FREE = "recognise"


def verdict(facts: Facts) -> list[Finding]:
    """An answer for each rival. Nothing where nothing was trained yet."""
    if not (facts.metrics or facts.comparisons or facts.finished):
        return []
    pairs = {rival: _pairs(facts, rival) for rival in RIVALS}
    answers = [_answer(facts, rival, pairs[rival]) for rival in ("random", "pixels") if pairs[rival]]
    if unknown := [rival for rival in ("random", "pixels") if not pairs[rival]]:
        answers.append(_not_measured(facts, unknown))
    if facts.began_from is not None or pairs["start"]:
        answers.append(_against_start(facts, pairs["start"]))
    if any(answer.level == "problem" for answer in answers):  # then no other answer makes it a good run
        answers = [replace(each, level="normal") if each.level == "good" else each for each in answers]
    return answers


def whole(facts: Facts, rival: str | None = None) -> list[Comparison]:
    """The newest comparison (with this rival) of each protocol on the whole encoder, with default settings where there
    is one; kNN comes first."""
    best: dict[str, Comparison] = {}
    for each in facts.comparisons:
        there = each.metric("trained") is not None and (rival is None or each.metric(rival) is not None)
        if there and each.layer is None:
            name = each.shared.protocol
            best[name] = min(each, best.get(name, each), key=lambda found: len(found.shared.special))
    return sorted(best.values(), key=lambda each: each.shared.protocol != "knn")


def difference(metric: Metric, other: Metric) -> Interval:
    """95 % interval of `metric` − `other`, from their own as if they were independent. On the same test samples they
    are not, which makes it wider than it is: what it calls clear is clear."""
    apart = metric.value - other.value
    (low, high), (other_low, other_high) = (each.interval or (each.value,) * 2 for each in (metric, other))
    below = math.hypot(metric.value - low, other_high - other.value)
    above = math.hypot(high - metric.value, other.value - other_low)
    return apart - below, apart + above


def _pairs(facts: Facts, rival: str) -> list[Comparison]:
    """Comparisons that answer. Recognition of views counts where nothing was measured with labels; single layers or
    views where nothing was measured of the whole encoder."""
    found = whole(facts, rival)
    if not found:
        both = (each for each in reversed(facts.comparisons) if each.metric("trained") and each.metric(rival))
        found = list(both)[:1]
    return [each for each in found if each.shared.protocol != _LABEL_FREE] or found


def _judged(comparison: Comparison, rival: str) -> tuple[Level, str]:
    trained, other = comparison.metric("trained"), comparison.metric(rival)
    assert trained is not None
    assert other is not None
    low, high = difference(trained, other)
    level: Level = "good" if low > 0 else "problem" if high < 0 else "warning"
    ends = ", ".join(f"{100 * end:+.1f}" if trained.unit == "%" else f"{end:+.3f}" for end in (low, high))
    place = "" if comparison.layer is None else f", {comparison.layer}"
    text = (
        f"{comparison.title} on {comparison.shared.data}{place}: {comparison.headline} {with_interval(trained)}, "
        f"{RIVALS[rival]} {with_interval(other)}"
    )
    return level, f"{text}: {signed(f'{trained.difference(other.value)} [{ends}]')}"


def _answer(facts: Facts, rival: str, pairs: list[Comparison]) -> Finding:
    judged = [_judged(each, rival) for each in pairs]
    level, word = _summed(level for level, _ in judged)
    text = f"{word} {'. '.join(text for _, text in judged)}."
    if pairs[0].shared.protocol == _LABEL_FREE:
        text += " This tells whether views are recognised; only labels tell whether the features help a task."
    return Finding(level, f"Better than {RIVALS[rival]}?", text, "" if level == "good" else _remedies(facts))


def _summed(levels: Iterable[Level]) -> tuple[Level, str]:
    """The worst level, and the answer in a word."""
    found = set(levels)
    words: dict[Level, str] = {
        "good": "Yes.",
        "warning": "There is no clear difference.",
        "problem": "No, it is worse.",
    }
    worst = min(found, key=LEVELS.index)
    return worst, words[worst] if len(found) == 1 else "Not by every measure."


def _remedies(facts: Facts) -> str:
    epochs = facts.series("epoch")[1]
    if facts.began_from is not None:
        return "What was learnt from its own images did not help: begin with what is said of its start."
    if not facts.finished:
        return "The run is not finished: look again when the learning rate is low."
    if epochs and epochs[-1] < _FEW_EPOCHS:
        return f"Train longer first: these were {epochs[-1]:.1f} epochs (--epochs, or --time)."
    return "Try another --lr, weaker augmentation (--min-crop 0.6), or a start from trained weights (--init)."


def _not_measured(facts: Facts, rivals: list[str]) -> Finding:
    names = " or ".join(RIVALS[rival] for rival in rivals)
    alone, knn = whole(facts), facts.series("knn")[1]
    known = ""
    if "random" in rivals and alone and (trained := alone[0].metric("trained")) is not None:
        known = f" {alone[0].title} on {alone[0].shared.data}: {alone[0].headline} {with_interval(trained)} alone."
    elif knn:
        known = f" kNN accuracy during training ended at {percent(knn[-1])}, which says little alone."
    without = "" if facts.labelled else " It needs no labels."
    advice = f"Run `{facts.evaluation}`.{without}"
    return Finding("unknown", f"Better than {names}?", f"Not measured.{known}", advice)


# The start.


def _against_start(facts: Facts, pairs: list[Comparison]) -> Finding:
    """By evaluations where there are any; else by kNN before and after, or by the recognition of views."""
    about, start = "Better than its start?", facts.began_from or "the given weights"
    courses = {name: (first, values) for name, first, values in _courses(facts)}
    seen = [
        f"{LOOKS[name]} {look(name, first)} → {look(name, values[-1])}" for name, (first, values) in courses.items()
    ]
    if pairs:
        judged = [_judged(each, "start") for each in pairs]
        level, word = _summed(level for level, _ in judged)
        words = [*(text for _, text in judged), *seen]
    elif courses:
        name, (first, values) = next(iter(courses.items()))
        level, word = _moved(facts, name, first, values[-1])
        words = seen
    else:
        against = "" if facts.has_start else f" --against {start}"
        return Finding(
            "unknown", about, f"The run began from {start}. Not measured.", f"Run `{facts.evaluation}{against}`."
        )
    text = f"{word} The run began from {start}. {'; '.join(words)}."
    if level != "good":
        return Finding(level, about, text, _gentler(facts, courses.get("knn")))
    return Finding(level, about, text)


def _courses(facts: Facts) -> list[tuple[str, float, list[float]]]:
    """The looks before the first step that were repeated, in the order of what they say."""
    found = ((name, number(facts.start.get(name)), facts.series(name)[1]) for name in LOOKS)
    return [(name, first, values) for name, first, values in found if first is not None and values]


def _moved(facts: Facts, name: str, first: float, last: float) -> tuple[Level, str]:
    if name == "feature_rank":
        shrunk = last < _SHRUNK * first
        return "warning", "The features use fewer directions." if shrunk else "Accuracy was not measured."
    tested = HELD_OUT * (number(facts.data.get("samples")) or 1.0) if name == "knn" else facts.contrast.get("samples")
    clear = clear_change(first, number(tested) or 1.0)
    if last - first > clear:
        return "good", "Yes."
    return ("problem", "No, it is worse.") if first - last > clear else ("warning", "There is no clear difference.")


def clear_change(share: float, samples: float) -> float:
    """How far a share of the same images has to move until it is clear: beyond two deviations of chance."""
    return max(_CLEAR, 2 * math.sqrt(share * (1 - share) / samples))


def _gentler(facts: Facts, knn: tuple[float, list[float]] | None) -> str:
    """The flags that keep more of what the start knew."""
    rate = number(facts.setting("optim", "backbone_lr")) or number(facts.setting("optim", "lr"))
    head = number(facts.setting("optim", "warmup_head_epochs")) or 0.0
    lower = f" {rate / 10:.2g}" if rate else ""
    advice = f"Use a lower --backbone-lr{lower}, --warmup-head-epochs {2 * head or 1:g}, or fewer --epochs"
    steps, values = facts.series("knn")
    if knn is not None and values and max(values) - max(knn[0], values[-1]) > _CLEAR:
        best = max(range(len(values)), key=values.__getitem__)
        return f"{advice}: it was best at step {steps[best]:,.0f}, with {percent(values[best])} " + (
            f"({points(values[best] - knn[0])})."
        )
    return f"{advice}. --snapshots 10 keeps encoders of earlier steps."
