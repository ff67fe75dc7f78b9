"""Whether one set-up is better than another, judged seed by seed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

__all__ = ["FEWEST", "Comparison", "Difference", "judge", "paired", "spread"]

FEWEST = 3  # seeds below which a spread says nothing
LEVEL = 1.0  # points within which two set-ups count as level


@dataclass(frozen=True)
class Comparison:
    """The paper finds `first` above `second`, or both level."""

    first: str
    second: str
    kind: Literal["above", "level"] = "above"


@dataclass(frozen=True)
class Difference:
    """Mean over seeds that both have, with its 95 % interval (Student's t); without one below three seeds."""

    mean: float
    seeds: int
    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.seeds < FEWEST:
            return f"{self.mean:+.1f} points ({self.seeds} seed{'s' * (self.seeds > 1)}, so no interval)"
        return f"{self.mean:+.1f} points [{self.low:+.1f}, {self.high:+.1f}] ({self.seeds} seeds)"

    def supports(self, kind: str) -> bool | None:
        """True and False where the interval decides, None where it does not."""
        if kind == "level":
            inside = self.low >= -LEVEL and self.high <= LEVEL
            return True if inside else False if self.low > LEVEL or self.high < -LEVEL else None
        return True if self.low > 0 else False if self.high < 0 else None


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """None without a seed that both have."""
    differences = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    if not differences:
        return None
    mean, count = statistics.mean(differences), len(differences)
    if count < FEWEST:
        return Difference(mean, count)
    half = float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(differences) / math.sqrt(count)
    return Difference(mean, count, mean - half, mean + half)


def judge(comparisons: Sequence[Comparison], values: Mapping[str, Mapping[int, float]]) -> str:
    """One sentence on the whole, then each comparison with its difference. `values` are by set-up and seed."""
    lines: list[str] = []
    verdicts: list[bool | None] = []
    for each in comparisons:
        difference = paired(values.get(each.first, {}), values.get(each.second, {}))
        if difference is None:
            lines.append(f"{each.first} against {each.second}: not run")
            verdicts.append(None)
            continue
        asked = "expected above" if each.kind == "above" else f"expected level within {LEVEL:g}"
        lines.append(f"{each.first} less {each.second} ({asked}): {difference}")
        verdicts.append(difference.supports(each.kind))
    return f"{_whole(verdicts)} {'; '.join(lines)}."


def _whole(verdicts: Sequence[bool | None]) -> str:
    for_it, against = verdicts.count(True), verdicts.count(False)
    if for_it == len(verdicts):
        return "The claim holds here."
    if against == len(verdicts):
        return "The claim does not hold here: every difference goes the other way."
    if not for_it and not against:
        return "Not decided here: no difference is clear of chance."
    return f"Holds in part: of {len(verdicts)} comparisons {for_it} for it, {against} against it, the rest undecided."


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "not run"
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
