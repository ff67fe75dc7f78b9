"""Settings against what the run met: queue and set, learning rate, readers."""

from manyview.report.diagnosis.finding import Finding
from manyview.report.facts import Facts, number
from manyview.report.words import percent

__all__ = ["learning_rate", "queue", "waiting"]

_LARGE, _WHOLE = 0.5, 0.9  # shares of the set that a queue holds
_SOME_WAIT, _MUCH_WAIT = 0.1, 0.4
_STILL_HIGH = 0.1  # of the highest learning rate, in the last step


def queue(facts: Facts) -> Finding | None:
    size, samples = number(facts.setting("method", "queue_size")), number(facts.data.get("samples"))
    batch = number(facts.setting("optim", "batch_size"))
    if not size or not samples or not batch or not facts.metrics:
        return None
    pushed = len(facts.metrics) * batch
    if pushed < size:
        text = f"The queue was never full of real keys: {pushed:,.0f} entered its {size:,.0f} places."
        advice = f"Train longer, or use --queue-size {max(1, int(pushed // 4))} or less."
        return Finding("bad" if facts.finished else "look", "Queue", text, advice)
    share = size / samples
    # An epoch is one shuffle: a sample comes back after N + b − a others, a and b uniform in 0…N, so that its own key
    # is among the last K with probability K²/2N².
    own = min(1.0, share) ** 2 / 2
    words = f"The queue of {size:,.0f} is {percent(share)} of the {samples:,.0f} images"
    if facts.setting("method", "mask_own"):
        return Finding("good", "Queue", f"{words}, and a sample's own old keys are masked.")
    words += f": about {percent(own)} of the queries meet their own old key as a negative"
    if share <= _LARGE:
        return Finding("good", "Queue", f"{words}.")
    advice = f"Use --mask-own, or --queue-size {max(1, int(samples // 4))} or less."
    return Finding("bad" if share >= _WHOLE else "look", "Queue", f"{words}.", advice)


def waiting(facts: Facts) -> Finding | None:
    """The share of the time, not of the steps. The first step waits for readers that are only starting."""
    rows = [(number(row.get("wait")), number(row.get("images_per_s"))) for row in facts.metrics[1:]]
    times = [(wait, 1 / rate) for wait, rate in rows if wait is not None and rate]
    if not times:
        return None
    share = sum(wait * time for wait, time in times) / sum(time for _, time in times)
    text = f"{percent(share)} of the time was spent waiting for data."
    if share < _SOME_WAIT:
        return Finding("good", "Data", text)
    workers = number(facts.setting("data", "workers")) or 0
    advice = f"Use more readers, such as --workers {max(2, 2 * int(workers))}, or `manyview pack` the images once."
    return Finding("bad" if share >= _MUCH_WAIT else "look", "Data", text, advice)


def learning_rate(facts: Facts) -> Finding | None:
    rates = facts.series("lr")[1]
    if not facts.finished or len(rates) < 2 or max(rates) <= 0:
        return None
    share = rates[-1] / max(rates)
    text = f"The learning rate ended at {percent(share)} of its highest value, {max(rates):.3g}."
    if share <= _STILL_HIGH:
        return Finding("good", "Learning rate", text)
    if rates[-1] > rates[-2]:
        advice = "Use fewer --warmup-epochs or train longer."
        return Finding("bad", "Learning rate", f"{text} It was still rising.", advice)
    advice = {
        "step": "add later --milestones or use a smaller --decay, or --schedule cosine",
        "cosine": "train for more steps",
    }.get(facts.setting("optim", "schedule"), "use --schedule cosine")
    return Finding("look", "Learning rate", text, f"Weights settle when it falls: {advice}.")
