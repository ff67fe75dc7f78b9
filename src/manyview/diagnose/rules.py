"""The rules by which a run is judged. Each rule reads the run's own numbers and gives a finding with advice."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

from manyview.diagnose.facts import Facts, read_facts
from manyview.diagnose.finding import LEVELS, Finding
from manyview.diagnose.verdict import verdict
from manyview.diagnose.words import chance_level, measured, percent, points
from manyview.evaluate.records import number
from manyview.methods import described, find


def findings(run: Path) -> list[Finding]:
    """What the numbers of a run say about it: the main question first, then the rules."""
    return judge(read_facts(run))


def judge(facts: Facts) -> list[Finding]:
    """The answers to the main question, then what the rules find."""
    return [*verdict(facts), *ruled(facts)]


def ruled(facts: Facts) -> list[Finding]:
    """What the rules find, worst first. A rule that does not apply to the run gives none. Beside an encoder that is not
    better than random weights, pixels or its start nothing is called good."""
    found = [finding for rule in _RULES if (finding := rule(facts)) is not None]
    if any(answer.level in ("problem", "warning") for answer in verdict(facts)):
        found = [replace(each, level="normal") if each.level == "good" else each for each in found]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


# Embeddings. A run that learns has a variance of nearly 1, and a rank of a third of its dimensions or more.
_ONE_POINT, _NEAR_ONE_POINT = 0.05, 0.3
_FEW_DIRECTIONS, _SMALL_SHARE = 3.0, 0.1


def _collapse(facts: Facts) -> Finding | None:
    """Collapse to one point (no variance) or to a few directions (low rank), by the last measurement."""
    variances, ranks = facts.series("variance")[1], facts.series("effective_rank")[1]
    if not variances or not ranks:
        if not facts.metrics or (facts.method in described() and not find(facts.method).contrastive):
            return None
        advice = "Train with --contrast-every 1 to measure them after every epoch."
        return Finding("unknown", "Embeddings", "Variance and rank of the embeddings were not measured.", advice)
    variance, rank, dim = variances[-1], ranks[-1], number(facts.setting("encoder", "dim")) or 0.0
    words = f"Variance {variance:.2f} (0: all equal, 1: spread out), effective rank {rank:.1f}"
    words += f" of {dim:.0f} dimensions." if dim else "."
    more = _flags(facts, "queue_size", "batch_size")
    if variance < _ONE_POINT and rank < max(_FEW_DIRECTIONS, _SMALL_SHARE * dim):
        advice = f"Try {_either(facts, 'a lower --lr', f'more negatives ({more})')}."
        text = f"The encoder has collapsed: all images have nearly the same embedding. {words}"
        return Finding("problem", "Embeddings", text, advice)
    if variance < _ONE_POINT:
        advice = f"Early in a run this is normal. At the end, try {_either(facts, 'another --lr')}."
        text = f"The embeddings lie close together, but still differ in many directions. {words}"
        return Finding("problem" if facts.finished else "warning", "Embeddings", text, advice)
    if rank < _FEW_DIRECTIONS:
        advice = f"Try more negatives ({more}) or stronger augmentation (--augment)."
        text = f"The encoder has collapsed: embeddings differ in a few directions only. {words}"
        return Finding("problem", "Embeddings", text, advice)
    if variance < _NEAR_ONE_POINT or rank < _SMALL_SHARE * dim:
        advice = (
            f"This is normal early in a run. At the end, try {_either(facts, 'stronger augmentation (--augment)')}."
        )
        return Finding("warning", "Embeddings", f"The embeddings use little of their space. {words}", advice)
    return Finding("good", "Embeddings", f"The encoder has not collapsed. {words}")


def _either(facts: Facts, *ways: str) -> str:
    """These ways out, and more epochs; but not for given weights, which may be worth more than what they become."""
    return " or ".join([*ways, *["more --epochs"] * (facts.began_from is None)])


def _flags(facts: Facts, *names: str) -> str:
    """Those of the flags that the run has."""
    there = {name for group in facts.config.values() for name in group}
    return ", ".join(f"--{name.replace('_', '-')}" for name in names if name in there)


# The loss. Its course is judged in parts, because a single batch says little.
_PARTS = 20
_NO_BETTER, _TRIVIAL = 0.98, 0.02  # fractions of the loss at chance
_EASY = 0.7  # of the loss at chance
_RISE, _NOISE = 0.25, 6.0  # of the whole range of the parts, and in standard errors of a part


def _not_finite(facts: Facts) -> Finding | None:
    steps = [row["step"] for row in facts.metrics if "loss" in row and number(row["loss"]) is None]
    if not steps:
        return None
    advice = "Start a new run with a lower --lr or with --clip-grad 1"
    advice += ", and with --precision bf16 instead of fp16." if facts.setting("optim", "precision") == "fp16" else "."
    return Finding("problem", "Loss", f"The loss was NaN or infinite in step {steps[0]:,.0f}.", advice)


def _against_chance(facts: Facts) -> Finding | None:
    """Not for methods without a chance level, and not while a queue still holds its random initial vectors, which are
    easily told from keys."""
    end, chance = facts.final_loss, facts.chance
    if chance is None or end is None or _pushed(facts) < (number(facts.setting("method", "queue_size")) or 0):
        return None
    if end >= _NO_BETTER * chance.loss:
        text = f"The final loss, {end:.2f}, is no better than chance ({chance_level(chance)}). Nothing was learnt."
        advice = "Try another --lr, more --epochs, or weaker augmentation (--min-crop 0.6)."
        return Finding("problem", "Loss", text, advice)
    if end < _TRIVIAL * chance.loss:
        text = f"The final loss, {end:.3f}, is almost 0 (chance: {chance_level(chance)}). The task is too easy."
        leaks = " or --bn-splits against leaks through batch norm" * bool(_flags(facts, "momentum", "bn_splits"))
        advice = f"Try stronger augmentation (--augment), more negatives ({_flags(facts, 'queue_size', 'batch_size')})"
        advice += f"{leaks}."
        return Finding("warning", "Loss", text, advice)
    like, candidates = math.exp(end / chance.terms), chance.candidates
    text = f"The final loss, {end:.2f}, is below chance ({chance_level(chance)}). The encoder finds a positive as if "
    return Finding("good", "Loss", f"{text}there were {like:,.1f} candidates instead of {candidates:,.0f}.")


def _easy_start(facts: Facts) -> Finding | None:
    """A queue of random vectors makes the first losses small: they are no success, and their rise is no failure."""
    size, losses = number(facts.setting("method", "queue_size")), facts.series("loss")[1]
    batch = number(facts.setting("optim", "batch_size"))
    if facts.chance is None or not size or not batch or not losses or losses[0] > _EASY * facts.chance.loss:
        return None
    text = (
        f"The loss began at {losses[0]:.2f}, far below chance ({facts.chance.loss:.2f}), and rises at first. The queue "
        "starts with random vectors, which are easy negatives; real keys are harder. Compare losses from step "
        f"{math.ceil(size / batch):,} on, when the queue is full of keys. --queue-start empty leaves them out."
    )
    return Finding("normal", "Loss at the start", text)


def _course(facts: Facts) -> Finding | None:
    """Only the second half counts: in the first one a queue fills with real keys, which are harder negatives. A loss
    whose weight λ grows is not judged."""
    steps, losses = facts.series("loss")
    weights = facts.series("lam")[1]
    if len(losses) < 2 * _PARTS or (weights and weights[0] != weights[-1]):
        return None
    ends = [round(part * len(losses) / _PARTS) for part in range(_PARTS + 1)]
    parts = [losses[start:end] for start, end in pairwise(ends)]
    means = [fmean(part) for part in parts]
    lowest = min(range(_PARTS // 2, _PARTS), key=means.__getitem__)
    rise = means[-1] - means[lowest]
    noise = fmean(pstdev(part) for part in parts) / math.sqrt(len(losses) / _PARTS)
    if rise > _RISE * (max(means) - min(means)) and rise > _NOISE * noise:
        where = f"near step {steps[ends[lowest]]:,.0f}"
        text = f"The loss rises from {means[lowest]:.3f} {where} to {means[-1]:.3f} at the end."
        return Finding("problem", "Loss curve", text, "Try a lower --lr, --clip-grad 1, or more --warmup-epochs.")
    text = f"The loss does not rise in the second half: lowest {means[lowest]:.3f}, final {means[-1]:.3f}."
    return Finding("good", "Loss curve", text)


# Settings and data.
_LARGE, _WHOLE = 0.5, 0.9  # shares of the set that a queue holds
_SOME_WAIT, _MUCH_WAIT = 0.1, 0.4
_STILL_HIGH = 0.1  # of the highest learning rate, in the last step


def _queue(facts: Facts) -> Finding | None:
    size, samples = number(facts.setting("method", "queue_size")), number(facts.data.get("samples"))
    pushed = _pushed(facts)
    if not size or not samples or not pushed:
        return None
    if pushed < size:
        text = f"The queue never filled: only {pushed:,.0f} keys entered its {size:,.0f} places."
        advice = f"Train longer, or use --queue-size {max(1, int(pushed // 4))} or less."
        return Finding("problem" if facts.finished else "warning", "Queue", text, advice)
    share = size / samples
    # An epoch is one shuffle: a sample comes back after N + b − a others, a and b uniform in 0…N, so that its own key
    # is among the last K with probability K²/2N².
    own = min(1.0, share) ** 2 / 2
    words = f"The queue holds {size:,.0f} keys, {percent(share)} of the {samples:,.0f} images"
    if facts.setting("method", "mask_own"):
        return Finding("good", "Queue", f"{words}. A sample's own old keys are masked.")
    words += f". About {percent(own)} of the queries meet their own old key as a negative."
    if share <= _LARGE:
        return Finding("good", "Queue", words)
    mask = "--mask-own, or " * bool(_flags(facts, "mask_own"))
    advice = f"Use {mask} --queue-size {max(1, int(samples // 4))} or less."
    return Finding("problem" if share >= _WHOLE else "warning", "Queue", words, advice)


def _pushed(facts: Facts) -> float:
    """Keys that have entered the queue."""
    return len(facts.metrics) * (number(facts.setting("optim", "batch_size")) or 0.0)


def _waiting(facts: Facts) -> Finding | None:
    """The share of the time, not of the steps. The first step waits for readers that are only starting."""
    rows = [(number(row.get("wait")), number(row.get("images_per_s"))) for row in facts.metrics[1:]]
    times = [(wait, 1 / rate) for wait, rate in rows if wait is not None and rate]
    if not times:
        return None
    share = sum(wait * time for wait, time in times) / sum(time for _, time in times)
    text = f"Training waited for data {percent(share)} of the time."
    if share < _SOME_WAIT:
        return Finding("good", "Data loading", text)
    workers = number(facts.setting("data", "workers"))
    if workers is None:  # auto
        advice = "Every processor reads already: pack the images (`manyview pack`), or store smaller ones."
    else:
        more = max(2, 2 * int(workers))
        advice = f"Use more reader processes (--workers {more}), or pack the images (`manyview pack`)."
    return Finding("problem" if share >= _MUCH_WAIT else "warning", "Data loading", text, advice)


def _learning_rate(facts: Facts) -> Finding | None:
    rates = facts.series("lr")[1]
    if not facts.finished or len(rates) < 2 or max(rates) <= 0:
        return None
    share = rates[-1] / max(rates)
    text = f"The learning rate ended at {percent(share)} of its peak of {max(rates):.3g}."
    if share <= _STILL_HIGH:
        return Finding("good", "Learning rate", text)
    if rates[-1] > rates[-2]:
        advice = "Use fewer --warmup-epochs, or train longer."
        return Finding("problem", "Learning rate", f"{text} It was still rising.", advice)
    advice = {
        "step": "Add later --milestones, use a smaller --decay, or use --schedule cosine.",
        "cosine": "Train for more steps.",
    }.get(facts.setting("optim", "schedule"), "Use --schedule cosine.")
    return Finding("warning", "Learning rate", text, f"{advice} Results are better when the rate falls to almost 0.")


# Accuracies.
_FELL, _FELL_MUCH = 0.02, 0.05
_GAP, _LARGE_GAP = 0.1, 0.3
_REMEDIES = {
    "linear": "Use more labelled images, or stronger regularisation (--regularisation 1).",
    "mlp": "Use more labelled images, more --dropout, or fewer --hidden units.",
}


def _knn_course(facts: Facts) -> Finding | None:
    about = "kNN during training"
    steps, shares = facts.series("knn")
    if len(shares) < 2:
        if not facts.metrics or not facts.labelled:
            return None
        advice = "Train with --knn-every 1 to measure it after every epoch."
        text = f"kNN accuracy was {'measured only once' if shares else 'not measured'}."
        return Finding("unknown", about, text, advice)
    best, last = max(range(len(shares)), key=shares.__getitem__), shares[-1]
    if shares[best] - last <= _FELL:
        text = f"kNN accuracy went from {percent(shares[0])} to {percent(last)}. It ended near its best value."
        return Finding("good", about, text)
    text = (
        f"kNN accuracy fell from {percent(shares[best])} at step {steps[best]:,.0f} to {percent(last)} at step "
        f"{steps[-1]:,.0f} ({points(last - shares[best])})."
    )
    advice = f"Try fewer steps (--max-steps {steps[best] + 1:.0f}), a lower --lr, or another --augment."
    return Finding("problem" if shares[best] - last > _FELL_MUCH else "warning", about, text, advice)


def _overfitting(facts: Facts) -> Finding | None:
    """Of all classifiers fitted on the trained encoder, the one with the largest gap between training and test."""
    gaps = [
        (fitted - tested.value, fitted, tested, comparison)
        for comparison in facts.comparisons
        if (tested := comparison.metric("trained")) is not None
        and tested.unit == "%"  # the limits are shares
        and (fitted := comparison.results["trained"].result.facts.get("fitted")) is not None
    ]
    if not gaps:
        if not facts.finished or not facts.labelled:
            return None
        advice = f"Run `{facts.command('evaluate linear')}`."
        return Finding("unknown", "Overfitting", "No classifier has been fitted on the features.", advice)
    gap, fitted, tested, worst = max(gaps, key=lambda each: each[0])
    layer = "" if worst.layer is None else f", {worst.layer}"
    text = (
        f"{worst.title} ({worst.shared.data}{layer}): {measured(tested, fitted)} on its training images, "
        f"{measured(tested)} on test images"
    )
    if gap <= _GAP:
        return Finding("good", "Overfitting", f"{text}. It does not overfit.")
    advice = _REMEDIES.get(worst.shared.protocol, "Use more labelled images, or fewer --epochs.")
    return Finding("problem" if gap > _LARGE_GAP else "warning", "Overfitting", f"{text}. It overfits.", advice)


_RULES = (
    _collapse,
    _not_finite,
    _against_chance,
    _easy_start,
    _course,
    _learning_rate,
    _queue,
    _waiting,
    _knn_course,
    _overfitting,
)
