"""How a cost grows, as a straight line."""

from collections.abc import Sequence

__all__ = ["fit"]


def fit(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and intercept of the line through (x, y) that leaves the least squares."""
    x_mean, y_mean = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    slope = sum((x - x_mean) * (y - y_mean) for x, y in pairs) / sum((x - x_mean) ** 2 for x, _ in pairs)
    return slope, y_mean - slope * x_mean
