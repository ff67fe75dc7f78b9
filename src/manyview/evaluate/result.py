"""The result of a protocol: named metrics with intervals. One of them is the headline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Interval = tuple[float, float]


@dataclass(frozen=True)
class Metric:
    """One number; higher is better."""

    value: float
    interval: Interval | None = None
    """95 % interval."""
    unit: Literal["%", ""] = "%"
    """`%`: a share in 0…1, shown in per cent; empty: a plain number."""

    def written(self, value: float) -> str:
        """`value` as this metric is printed."""
        return f"{100 * value:.1f} %" if self.unit == "%" else f"{value:.3f}"

    def difference(self, other: float) -> str:
        """How far this value is above `other`."""
        return f"{100 * (self.value - other):+.1f} points" if self.unit == "%" else f"{self.value - other:+.3f}"

    def __str__(self) -> str:
        if self.interval is None:
            return self.written(self.value)
        low, high = (self.written(end).removesuffix(" %") for end in self.interval)
        return f"{self.written(self.value)} [{low}, {high}]"


@dataclass(frozen=True)
class Result:
    """What one protocol found of one encoder."""

    metrics: Mapping[str, Metric]
    headline: str
    """The metric that stands for the result where there is room for one."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers: train_samples, test_samples, classes, chosen hyper-parameters, and `fitted`, the headline metric
    on the classifier's training samples."""
    preprocess: str = ""
    """How the images were prepared."""
    unreadable: int = 0
    """Images that were left out because they cannot be read."""

    def __post_init__(self) -> None:
        if self.headline not in self.metrics:
            raise ValueError(f"the headline {self.headline!r} is none of the metrics {', '.join(self.metrics)}")

    @property
    def main(self) -> Metric:
        """The headline's."""
        return self.metrics[self.headline]

    @property
    def value(self) -> float:
        return self.main.value
