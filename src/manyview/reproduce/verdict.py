"""Whether a claim of a paper shows here: differences over seeds with their intervals, as a table and one count."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

FEWEST = 3  # seeds below which there is no interval
ABOVE, LEVEL = (0.0, math.inf), (-1.0, 1.0)  # where a difference lies by a claim, in points

Values = Mapping[str, Mapping[int, float]]  # by set-up and seed


@dataclass(frozen=True)
class Table:
    """As it is shown, in whatever form."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Interval:
    """Mean over seeds with its 95 % interval (Student's t); without one below three seeds."""

    mean: float
    seeds: int
    low: float = -math.inf
    high: float = math.inf
    ratio: bool = False  # which has no sign

    def __str__(self) -> str:
        mean, low, high = (f"{each:.2f}" if self.ratio else signed(each) for each in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]" if self.seeds >= FEWEST else f"{mean}{' (no interval)' * (not self.ratio)}"

    def within(self, low: float, high: float) -> bool | None:
        """True and False where the interval decides, None where it does not."""
        return True if self.low > low and self.high < high else False if self.low > high or self.high < low else None


def over_seeds(values: Sequence[float], *, ratio: bool = False) -> Interval:
    """Of one value for each seed, or each repetition."""
    mean, number = statistics.mean(values), len(values)
    if number < FEWEST:
        return Interval(mean, number, ratio=ratio)
    half = float(stats.t.ppf(0.975, number - 1)) * statistics.stdev(values) / math.sqrt(number)
    return Interval(mean, number, mean - half, mean + half, ratio)


@dataclass(frozen=True)
class Comparison:
    """Between which bounds the paper has the difference of two set-ups, or their ratio."""

    first: str
    second: str
    bounds: tuple[float, float] = ABOVE
    claimed: str = "above 0"
    ratio: str = ""  # how it is called where it is one

    def found(self, values: Values) -> Interval | None:
        """Over the seeds that both have; None without one."""
        first, second = (values.get(name, {}) for name in (self.first, self.second))
        pairs = [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]
        apart = [one / other if self.ratio else one - other for one, other in pairs]
        return over_seeds(apart, ratio=bool(self.ratio)) if apart else None


def claims(*words: str) -> tuple[Comparison, ...]:
    """Of "first > second" and "first ≈ second"."""
    parts = (re.split(" ([>≈]) ", each) for each in words)
    level = (LEVEL, f"within ±{LEVEL[1]:g}")
    return tuple(Comparison(first, second, *(() if sign == ">" else level)) for first, sign, second in parts)


@dataclass(frozen=True)
class Compared:
    """A claim beside what was found, which is None where it was not run; `agrees` is None where that is undecided."""

    what: str
    claimed: str
    found: Interval | None
    agrees: bool | None


def compare(comparisons: Sequence[Comparison], values: Values) -> list[Compared]:
    compared = []
    for each in comparisons:
        what, found = each.ratio or f"{each.first} − {each.second}", each.found(values)
        compared.append(Compared(what, each.claimed, found, found.within(*each.bounds) if found else None))
    return compared


def compared_table(caption: str, compared: Sequence[Compared]) -> Table:
    """A row for each comparison that was run."""
    words = {True: "yes", False: "no", None: "undecided"}
    rows = tuple(
        (each.what, each.claimed, str(each.found), str(each.found.seeds), words[each.agrees])
        for each in compared
        if each.found
    )
    return Table(caption, ("", "claimed", "found [95 %]", "seeds", "agrees with the paper"), rows)


def count(compared: Sequence[Compared]) -> str:
    """How many comparisons agree with the paper, in a sentence."""
    run = [(each.agrees, each.found.seeds) for each in compared if each.found]
    if not run:
        return "Not run."
    agree, contradict, undecided = ([agrees for agrees, _ in run].count(side) for side in (True, False, None))
    words = [f"{agree} of {len(compared)} comparisons {'agrees' if agree == 1 else 'agree'} with the paper"]
    for number, one, several in (
        (contradict, "contradicts it", "contradict it"),
        (undecided, "is undecided", "are undecided"),
        (len(compared) - len(run), "was not run", "were not run"),
    ):
        words += [f"{number} {one if number == 1 else several}"] if number else []
    few = f" Fewer than {FEWEST} seeds give no interval." if any(seeds < FEWEST for _, seeds in run) else ""
    return f"{', '.join(words)}.{few}"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "not run"
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
