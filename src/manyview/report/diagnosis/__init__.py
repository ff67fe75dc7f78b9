"""What a run's own numbers say about it, in plain words: is it well, and if not, which flag to turn."""

from manyview.report.diagnosis.accuracy import knn_course, probe
from manyview.report.diagnosis.embeddings import collapse
from manyview.report.diagnosis.finding import LEVELS, Finding, Level
from manyview.report.diagnosis.loss import against_chance, course, not_finite
from manyview.report.diagnosis.running import learning_rate, queue, waiting
from manyview.report.facts import Facts

__all__ = ["LEVELS", "Finding", "Level", "diagnose"]

_CHECKS = (collapse, not_finite, against_chance, course, learning_rate, queue, waiting, knn_course, probe)


def diagnose(facts: Facts) -> list[Finding]:
    """The findings, the worst first; what the numbers of a run cannot tell is left out."""
    found = [finding for check in _CHECKS if (finding := check(facts)) is not None]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))
