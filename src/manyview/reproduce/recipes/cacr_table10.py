"""CACR, Table 10: conditional distributions turned round."""

from manyview.reproduce.cacr_grid import CacrGrid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Reversed"]

VARIANTS = {
    "far positives, near negatives": (),
    "near positives, near negatives": ("--positive-weights", "near"),
    "far positives, far negatives": ("--negative-weights", "far"),
    "near positives, far negatives": ("--positive-weights", "near", "--negative-weights", "far"),
}
OURS, NEAR_POSITIVES, FAR_NEGATIVES, BOTH = VARIANTS
PAPER_FIGURES = dict(zip(VARIANTS, (86.48, 83.91, 79.46, 74.91), strict=True))


class Reversed(CacrGrid):
    name = "cacr-table10"
    where = "CACR, Table 10"
    title = "CACR (K = 4) with its conditional distributions turned round"
    claim = "Weighing near positives more costs some points, weighing far negatives more costs many."
    expectation = "The same order; far negatives far behind."
    variables = ("weights",)
    paper = PAPER_FIGURES
    comparisons = (
        Comparison(OURS, NEAR_POSITIVES),
        Comparison(OURS, FAR_NEGATIVES),
        Comparison(NEAR_POSITIVES, FAR_NEGATIVES),
        Comparison(FAR_NEGATIVES, BOTH),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        return [self.variant(setting, {"weights": name}, seed, *flags) for name, flags in VARIANTS.items()]
