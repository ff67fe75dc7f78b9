"""Problems of a run: findings with advice, and the numbers of embeddings that they use."""

from pathlib import Path

from manyview.diagnose.contrast import CONTRAST, contrast
from manyview.diagnose.embeddings import (
    alignment,
    different_similarity,
    effective_rank,
    nearest,
    positive_similarity,
    separation,
    uniformity,
    variance,
)
from manyview.diagnose.facts import read_facts
from manyview.diagnose.mine import estimate_mutual_information
from manyview.diagnose.monitor import ContrastMonitor
from manyview.diagnose.rules import LEVELS, Finding, judge

__all__ = [
    "CONTRAST",
    "LEVELS",
    "ContrastMonitor",
    "Finding",
    "alignment",
    "contrast",
    "different_similarity",
    "effective_rank",
    "estimate_mutual_information",
    "findings",
    "nearest",
    "positive_similarity",
    "separation",
    "uniformity",
    "variance",
]


def findings(run: Path) -> list[Finding]:
    """What the numbers of a run say about it, worst first."""
    return judge(read_facts(run))
