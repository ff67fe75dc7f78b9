"""What embeddings look like: numbers (pure functions), the same during a training, and plots."""

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
from manyview.diagnose.mine import estimate_mutual_information
from manyview.diagnose.plots import layer_plot, line_plot, similarity_plot
from manyview.diagnose.watch import Watch

__all__ = [
    "CONTRAST",
    "Watch",
    "alignment",
    "contrast",
    "different_similarity",
    "effective_rank",
    "estimate_mutual_information",
    "layer_plot",
    "line_plot",
    "nearest",
    "positive_similarity",
    "separation",
    "similarity_plot",
    "uniformity",
    "variance",
]
