"""Numbers as the findings and the page write them."""

from manyview.evaluate.result import Metric
from manyview.methods.base import Chance


def chance_level(chance: Chance) -> str:
    """Such as log 4,097 = 8.32."""
    times = f"{chance.terms} · " if chance.terms > 1 else ""
    return f"{times}log {f'{chance.candidates:,.1f}'.removesuffix('.0')} = {chance.loss:.2f}"


def spelled(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(spelled, value))
    return str(value)


def percent(share: float) -> str:
    return f"{100 * share:.1f}\u202f%"


def points(difference: float) -> str:
    return signed(f"{100 * difference:+.1f} points")


def measured(metric: Metric, value: float | None = None) -> str:
    """The metric's value, or another one in its unit."""
    return metric.written(metric.value if value is None else value).replace(" ", "\u202f")


def look(name: str, value: float) -> str:
    """What was seen of an encoder during training: a rank, or a share."""
    return f"{value:.1f}" if name == "feature_rank" else percent(value)


def with_interval(metric: Metric) -> str:
    """Such as 71.4 % [69.5, 73.2]."""
    return str(metric).replace(" %", "\u202f%")


def signed(text: str) -> str:
    return text.replace("-", "−")


def duration(seconds: float) -> str:
    whole = round(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.1f} s"
