"""What accuracies say: whether neighbours got worse during the run, and whether a probe learnt by heart."""

from manyview.report.diagnosis.finding import Finding
from manyview.report.facts import Facts, number
from manyview.report.words import command, percent, points

__all__ = ["knn_course", "probe"]

_FELL, _FELL_MUCH = 0.02, 0.05
_GAP, _LARGE_GAP = 0.1, 0.3
_REMEDIES = {
    "linear": "More labelled images, or a stronger penalty (--regularisation 1).",
    "mlp": "More labelled images, more --dropout or fewer --hidden units.",
}


def knn_course(facts: Facts) -> Finding | None:
    steps, shares = facts.series("knn")
    if len(shares) < 2:
        if not facts.metrics or not facts.data.get("classes"):
            return None
        advice = "--knn-every 1 measures it after each epoch."
        return Finding("unknown", "kNN during the run", "It was not measured often enough to tell its course.", advice)
    best, last = max(range(len(shares)), key=shares.__getitem__), shares[-1]
    if shares[best] - last <= _FELL:
        text = f"kNN accuracy went from {percent(shares[0])} to {percent(last)}; it was never much higher."
        return Finding("good", "kNN during the run", text)
    text = (
        f"kNN accuracy fell: {percent(shares[best])} at step {steps[best]:,.0f}, {percent(last)} at step "
        f"{steps[-1]:,.0f} ({points(last - shares[best])})."
    )
    advice = f"Try fewer steps (--max-steps {steps[best] + 1:.0f}), a lower --lr or other views (--augment)."
    return Finding("bad" if shares[best] - last > _FELL_MUCH else "look", "kNN during the run", text, advice)


def probe(facts: Facts) -> Finding | None:
    """Of all probes of the trained encoder, the one that does worst on what it has not seen."""
    gaps = [
        (fitted - tested, fitted, tested, comparison)
        for comparison in facts.comparisons
        if (fitted := number(comparison.results.get("trained", {}).get("train_top1"))) is not None
        and (tested := comparison.top1("trained")) is not None
    ]
    if not gaps:
        if not facts.finished:
            return None
        text = "Whether a classifier on these features overfits is not known."
        return Finding("unknown", "Probe", text, f"{command(facts, 'evaluate linear')} fits one and tells.")
    gap, fitted, tested, worst = max(gaps, key=lambda each: each[0])
    layer = "" if worst.layer is None else f", {worst.layer}"
    text = (
        f"{worst.title} ({worst.data}{layer}): {percent(fitted)} on what it was fitted on, "
        f"{percent(tested)} on test images"
    )
    if gap <= _GAP:
        return Finding("good", "Probe", f"{text}: it does not overfit.")
    advice = _REMEDIES.get(worst.protocol, "More labelled images, or fewer --epochs.")
    return Finding("bad" if gap > _LARGE_GAP else "look", "Probe", f"{text}: it overfits.", advice)
