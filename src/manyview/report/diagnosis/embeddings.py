"""Has the encoder collapsed?"""

from manyview.report.diagnosis.finding import Finding
from manyview.report.facts import Facts, number

__all__ = ["collapse"]

# A run that learns has a variance of nearly 1, and a rank of a third of its dimensions or more.
_ONE_POINT, _NEAR_ONE_POINT = 0.05, 0.3
_FEW_DIRECTIONS, _SMALL_SHARE = 3.0, 0.1


def collapse(facts: Facts) -> Finding | None:
    """To a point (no variance) or to a few directions (low rank), in the last look at the embeddings."""
    variances, ranks = facts.series("variance")[1], facts.series("effective_rank")[1]
    if not variances or not ranks:
        if not facts.metrics:
            return None
        advice = "--watch-every 1 looks at them after each epoch."
        return Finding("unknown", "Embeddings", "Variance and rank of the embeddings were not watched.", advice)
    variance, rank, dim = variances[-1], ranks[-1], number(facts.setting("encoder", "dim")) or 0.0
    words = f"their variance is {variance:.2f} (0: one point, 1: spread out), their effective rank {rank:.1f}"
    if variance < _ONE_POINT:
        advice = "Try a lower --lr or a larger --temperature; a run of a few epochs may only need more --epochs."
        return Finding("bad", "Embeddings", f"Collapsed: all images get nearly the same embedding; {words}.", advice)
    if rank < _FEW_DIRECTIONS:
        advice = "Try more negatives (--queue-size, --batch-size) or stronger views (--augment)."
        return Finding("bad", "Embeddings", f"Collapsed to a few directions: {words}.", advice)
    if variance < _NEAR_ONE_POINT or rank < _SMALL_SHARE * dim:
        advice = "Early in a run this is normal; at its end try more --epochs or stronger views (--augment)."
        return Finding("look", "Embeddings", f"The embeddings fill little of their space: {words}.", advice)
    return Finding("good", "Embeddings", f"Not collapsed: embeddings differ from image to image; {words}.")
