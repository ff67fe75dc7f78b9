"""The findings of a recipe's runs; the same finding of several runs becomes one."""

from collections.abc import Mapping
from pathlib import Path

from manyview.diagnose import LEVELS, Finding, findings

__all__ = ["over_runs"]

_NAMED = 3  # so many runs are named


def over_runs(runs: Mapping[str, Path]) -> list[Finding]:
    """One finding for each subject and level, worst first, with the text of its first run."""
    alike: dict[tuple[str, str], dict[str, Finding]] = {}
    for name, run in runs.items():
        for finding in findings(run):
            alike.setdefault((finding.level, finding.about), {})[name] = finding
    found = [_together(same, len(runs)) for same in alike.values()]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def _together(same: Mapping[str, Finding], runs: int) -> Finding:
    first, finding = next(iter(same.items()))
    if len(same) == runs > 1:
        where = f"All {runs} runs, for example {first}: "
    elif len(same) <= _NAMED:
        where = f"{'; '.join(same)}: "
    else:
        where = f"{len(same)} of {runs} runs, for example {first}: "
    return Finding(finding.level, finding.about, where + finding.text, finding.advice)
