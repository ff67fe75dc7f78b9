"""What the loss says: whether it is a number, whether it is better than guessing, and how it went."""

import math
from itertools import pairwise
from statistics import fmean, pstdev

from manyview.report.diagnosis.finding import Finding
from manyview.report.facts import Facts, number
from manyview.report.words import chance_level

__all__ = ["against_chance", "course", "not_finite"]

_PARTS = 20  # in which the course of the loss is judged: a single batch says little
_GUESSING, _TRIVIAL = 0.98, 0.02  # shares of the loss of guessing
_RISE, _NOISE = 0.25, 6.0  # of the whole range of the parts, and in standard errors of a part


def not_finite(facts: Facts) -> Finding | None:
    steps = [row["step"] for row in facts.metrics if "loss" in row and number(row["loss"]) is None]
    if not steps:
        return None
    advice = "Start anew with a lower --lr or with --clip-grad 1"
    advice += ", and --precision bf16 instead of fp16." if facts.setting("optim", "precision") == "fp16" else "."
    return Finding("bad", "Loss", f"The loss was no finite number in step {steps[0]:,.0f}.", advice)


def against_chance(facts: Facts) -> Finding | None:
    """Nothing for methods without such a level, nor while a queue still holds the random vectors that it started with:
    these are easily told from keys."""
    losses, chance = facts.series("loss")[1], facts.chance
    if chance is None or not losses or _unfilled(facts):
        return None
    end = fmean(losses[-max(1, len(losses) // _PARTS) :])
    if end >= _GUESSING * chance.loss:
        text = f"The loss of {end:.2f} is no better than guessing ({chance_level(chance)}): nothing was learnt."
        return Finding("bad", "Loss", text, "Try another --lr, more --epochs, or weaker views (--min-crop 0.6).")
    if end < _TRIVIAL * chance.loss:
        text = f"The loss of {end:.3f} is next to nothing (guessing: {chance_level(chance)}): the task is too easy."
        advice = "Try stronger views (--augment), more negatives, or --bn-splits, so that statistics give nothing away."
        return Finding("look", "Loss", text, advice)
    like, all_of = math.exp(end / chance.terms), chance.candidates
    text = f"The loss of {end:.2f} is below that of guessing ({chance_level(chance)}): a positive is told from the "
    return Finding("good", "Loss", f"{text}others as if it were one of {like:,.1f} and not of {all_of:,.0f}.")


def course(facts: Facts) -> Finding | None:
    """A loss that rises in the second half. In the first one a queue fills with real keys, which are harder to tell
    apart; while λ grows, the loss grows with it."""
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
        where = f"around step {steps[ends[lowest]]:,.0f}"
        text = f"The loss rises: {means[lowest]:.3f} {where}, {means[-1]:.3f} at the end."
        return Finding("bad", "Course of the loss", text, "Try a lower --lr, --clip-grad 1 or --warmup-epochs.")
    text = f"The loss does not rise in the second half: {means[-1]:.3f} at the end, {means[lowest]:.3f} at its lowest."
    return Finding("good", "Course of the loss", text)


def _unfilled(facts: Facts) -> bool:
    size, batch = number(facts.setting("method", "queue_size")), number(facts.setting("optim", "batch_size"))
    return size is not None and batch is not None and len(facts.metrics) * batch < size
