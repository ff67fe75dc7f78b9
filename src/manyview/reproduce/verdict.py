"""Whether a claim of a paper shows here: differences over seeds with their intervals, as a table and one count."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

__all__ = [
    "FEWEST", "Compared", "Comparison", "Difference", "Table", "claims", "compare", "compared_table", "count",
    "judged", "judged_ratio", "over_seeds", "paired", "signed", "spread",
]  # fmt: skip

FEWEST = 3  # seeds below which there is no interval
LEVEL = 1.0  # points within which two set-ups count as level

Values = Mapping[str, Mapping[int, float]]  # by set-up and seed


@dataclass(frozen=True)
class Table:
    """As it is shown, in whatever form."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """The paper finds `first` above `second`, or both level."""

    first: str
    second: str
    kind: Literal["above", "level"] = "above"

    def difference(self, values: Values) -> "Difference | None":
        return paired(values.get(self.first, {}), values.get(self.second, {}))


def claims(*words: str) -> tuple[Comparison, ...]:
    """Of "first > second" and "first ≈ second"."""
    parts = (re.split(" ([>≈]) ", each) for each in words)
    return tuple(Comparison(first, second, "above" if sign == ">" else "level") for first, sign, second in parts)


@dataclass(frozen=True)
class Difference:
    """Mean over seeds that both have, with its 95 % interval (Student's t); without one below three seeds."""

    mean: float
    seeds: int
    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.seeds < FEWEST:
            return f"{signed(self.mean)} (no interval)"
        return f"{signed(self.mean)} [{signed(self.low)}, {signed(self.high)}]"

    def plain(self) -> str:
        """Of a ratio, which has no sign."""
        return f"{self.mean:.2f}" + (f" [{self.low:.2f}, {self.high:.2f}]" if self.seeds >= FEWEST else "")

    def within(self, low: float, high: float) -> bool | None:
        """True and False where the interval decides, None where it does not."""
        inside = self.low >= low and self.high <= high
        return True if inside else False if self.low > high or self.high < low else None

    def supports(self, kind: str) -> bool | None:
        if kind == "level":
            return self.within(-LEVEL, LEVEL)
        return True if self.low > 0 else False if self.high < 0 else None


@dataclass(frozen=True)
class Compared:
    """A claim beside what was found; `agrees` is None where that is undecided. Without seeds it was not run."""

    what: str
    claimed: str
    found: str = ""
    seeds: int = 0
    agrees: bool | None = None


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """None without a seed that both have."""
    both = sorted(first.keys() & second.keys())
    return over_seeds([first[seed] - second[seed] for seed in both]) if both else None


def over_seeds(values: Sequence[float]) -> Difference:
    """Of one value for each seed, or each repetition."""
    mean, number = statistics.mean(values), len(values)
    if number < FEWEST:
        return Difference(mean, number)
    half = float(stats.t.ppf(0.975, number - 1)) * statistics.stdev(values) / math.sqrt(number)
    return Difference(mean, number, mean - half, mean + half)


def compare(comparisons: Sequence[Comparison], values: Values) -> list[Compared]:
    return [judged(f"{each.first} − {each.second}", each.difference(values), each.kind) for each in comparisons]


def judged(what: str, difference: Difference | None, kind: str = "above") -> Compared:
    claimed = "above 0" if kind == "above" else f"within ±{LEVEL:g}"
    if difference is None:
        return Compared(what, claimed)
    return Compared(what, claimed, str(difference), difference.seeds, difference.supports(kind))


def judged_ratio(what: str, claimed: str, ratios: Sequence[float], low: float, high: float) -> Compared:
    """Of one ratio for each repetition; the paper has it between `low` and `high`."""
    if not ratios:
        return Compared(what, claimed)
    ratio = over_seeds(ratios)
    return Compared(what, claimed, ratio.plain(), ratio.seeds, ratio.within(low, high))


def compared_table(caption: str, compared: Sequence[Compared]) -> Table:
    """A row for each comparison that was run."""
    words, run = {True: "yes", False: "no", None: "undecided"}, (each for each in compared if each.seeds)
    rows = tuple((each.what, each.claimed, each.found, str(each.seeds), words[each.agrees]) for each in run)
    return Table(caption, ("", "claimed", "found [95 %]", "seeds", "agrees with the paper"), rows)


def count(compared: Sequence[Compared]) -> str:
    """How many comparisons agree with the paper, in a sentence."""
    run = [each for each in compared if each.seeds]
    if not run:
        return "Not run."
    agree, contradict, undecided = ([each.agrees for each in run].count(side) for side in (True, False, None))
    parts = [f"{agree} of {len(compared)} comparisons {'agrees' if agree == 1 else 'agree'} with the paper"]
    parts += [f"{contradict} {'contradicts' if contradict == 1 else 'contradict'} it"] if contradict else []
    parts += [f"{undecided} {'is' if undecided == 1 else 'are'} undecided"] if undecided else []
    missing = len(compared) - len(run)
    parts += [f"{missing} {'was' if missing == 1 else 'were'} not run"] if missing else []
    few = f" Fewer than {FEWEST} seeds give no interval." if any(each.seeds < FEWEST for each in run) else ""
    return f"{', '.join(parts)}.{few}"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "not run"
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
