"""Whether one set-up is better than another, judged seed by seed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from manyview.reproduce.recipe import Table

__all__ = [
    "DECIDED",
    "FEWEST",
    "Comparison",
    "Difference",
    "are",
    "differences",
    "judge",
    "over_seeds",
    "paired",
    "signed",
    "spread",
    "tenor",
]

FEWEST = 3  # seeds below which a spread says nothing
DECIDED = {True: "The claim holds here", False: "The claim does not hold here", None: "Not decided here"}
NAMED = 4  # clear differences that a sentence names; of more it tells the number
LOPSIDED = 5  # clear differences on one side for each on the other that make it "mostly"
LEVEL = 1.0  # points within which two set-ups count as level


@dataclass(frozen=True)
class Comparison:
    """The paper finds `first` above `second`, or both level."""

    first: str
    second: str
    kind: Literal["above", "level"] = "above"

    def in_words(self, *, turned: bool = False) -> str:
        """What it says, or what is clearly so where that is clearly wrong."""
        if self.kind == "level":
            return f"{self.first} {'not ' * turned}level with {self.second}"
        return f"{self.second} above {self.first}" if turned else f"{self.first} above {self.second}"


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
        """Of a ratio, whose sign goes without saying."""
        return f"{self.mean:.2f}" + (f" [{self.low:.2f}, {self.high:.2f}]" if self.seeds >= FEWEST else "")

    def points_to(self, kind: str) -> bool:
        """Whether the mean alone is as expected."""
        return abs(self.mean) <= LEVEL if kind == "level" else self.mean > 0

    def supports(self, kind: str) -> bool | None:
        """True and False where the interval decides, None where it does not."""
        if kind == "level":
            inside = self.low >= -LEVEL and self.high <= LEVEL
            return True if inside else False if self.low > LEVEL or self.high < -LEVEL else None
        return True if self.low > 0 else False if self.high < 0 else None


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """None without a seed that both have."""
    both = sorted(first.keys() & second.keys())
    return over_seeds([first[seed] - second[seed] for seed in both]) if both else None


def over_seeds(values: Sequence[float]) -> Difference:
    """Of one value for each seed, or each repetition."""
    mean, count = statistics.mean(values), len(values)
    if count < FEWEST:
        return Difference(mean, count)
    half = float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return Difference(mean, count, mean - half, mean + half)


def judge(comparisons: Sequence[Comparison], values: Mapping[str, Mapping[int, float]]) -> str:
    """A sentence or two on the whole. `values` are by set-up and seed."""
    found = [(each, paired(values.get(each.first, {}), values.get(each.second, {}))) for each in comparisons]
    run = [(each, difference) for each, difference in found if difference is not None]
    if not run:
        return "Not run."
    sure = [(each, difference) for each, difference in run if difference.seeds >= FEWEST]
    missing = len(found) - len(run)
    part = f" ({missing} of {len(found)} comparisons were not run)" if missing else ""
    if not sure:
        seeds = max(difference.seeds for _, difference in run)
        as_paper = sum(difference.points_to(each.kind) for each, difference in run)
        return (
            f"Not decided here: {seeds} seed{'s' * (seeds > 1)} give{'s' * (seeds == 1)} no interval. {as_paper} of "
            f"{len(run)} differences are as the paper has them{part}."
        )
    few = len(run) - len(sure)
    findings = [difference.supports(each.kind) for each, difference in sure]
    right, wrong, open_ = (
        [pair for pair, finding in zip(sure, findings, strict=True) if finding is side] for side in (True, False, None)
    )
    count, for_it, against = len(sure), len(right), len(wrong)
    unclear = [difference.points_to(each.kind) for each, difference in open_]
    start = tenor(findings)
    if for_it == count:
        all_of = f"all {count} differences are" if count > 1 else "the difference is"
        start = "As far as it was run, the claim holds here" if missing or few else start
        words = f"{start}: {all_of} as in the paper, clear of chance"
    elif against == count:
        all_of = f"all {count} differences contradict" if count > 1 else "the difference contradicts"
        words = f"{start}: {all_of} it, clear of chance"
    elif not for_it and not against:
        none_is = f"none of {count} differences is" if count > 1 else "the difference is not"
        words = f"{start}: {none_is} clear of chance"
    else:
        words = (
            f"{start}: of {count} differences {for_it or 'none'} {are(for_it)} clearly as the paper has "
            f"them{_names(right)}, {against or 'none'} {are(against)} clearly otherwise{_names(wrong, turned=True)}"
        )
    if unclear:
        others = "" if not for_it and not against else f"; {len(unclear)} {are(len(unclear))} not clear of chance"
        words += f"{others}, and {_ways(unclear)} the paper's way"
    sentences = [f"{words}{part}."]
    sentences += [f"{few} more {'have' if few > 1 else 'has'} too few seeds for an interval."] if few else []
    sentences += [f"Each of the {count} is judged at 95 % by itself."] if count > 1 else []
    return " ".join(sentences)


def tenor(findings: Sequence[bool | None]) -> str:
    """In a word, of findings that bear out the paper, contradict it, or do not say."""
    if len(set(findings)) == 1:
        return DECIDED[findings[0]]
    for_it, against = findings.count(True), findings.count(False)
    if not against:
        return "Partly"
    if against >= LOPSIDED * for_it:
        return "Mostly not borne out here" if for_it else "Not borne out here"
    return "Mostly borne out here" if for_it >= LOPSIDED * against else "Mixed"


def _ways(unclear: Sequence[bool]) -> str:
    if len(unclear) == 1:
        return "points" if unclear[0] else "does not point"
    many = "all" if all(unclear) else sum(unclear) or "none"
    return f"{many} of these {'points' if sum(unclear) <= 1 else 'point'}"


def _names(found: Sequence[tuple[Comparison, Difference]], *, turned: bool = False) -> str:
    words = "; ".join(each.in_words(turned=turned) for each, _ in found)
    return f" ({words})" if 0 < len(found) <= NAMED else ""


def are(count: int) -> str:
    """Of so many; none is one."""
    return "are" if count > 1 else "is"


def differences(
    comparisons: Sequence[Comparison],
    values: Mapping[str, Mapping[int, float]],
    unit: str = "points of linear accuracy",
) -> Table:
    """Each comparison with its difference and what that says."""
    words = {True: "yes", False: "no", None: "not clear"}
    rows = []
    for each in comparisons:
        difference = paired(values.get(each.first, {}), values.get(each.second, {}))
        expected = "above 0" if each.kind == "above" else f"within ±{LEVEL:g}"
        if difference is not None:
            shown = (str(difference), str(difference.seeds), words[difference.supports(each.kind)])
            rows.append((f"{each.first} − {each.second}", expected, *shown))
    header = ("", "claimed", "difference [95 %]", "seeds", "as claimed?")
    return Table(f"Paired differences over seeds, in {unit}", header, tuple(rows))


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "not run"
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
