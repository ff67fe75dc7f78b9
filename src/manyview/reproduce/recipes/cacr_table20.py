"""CACR, Table 20: Euclidean against RBF cost."""

from collections.abc import Mapping

from manyview.reproduce.cacr_grid import SHARPER, SHARPER_REMARK, VARIANTS_REMARK, CacrGrid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Costs"]
PAPER_FIGURES = {
    "K = 1, euclidean": 83.73,
    "K = 1, rbf": 83.08,
    "K = 4, euclidean": 85.94,
    "K = 4, rbf": 86.20,
}


class Costs(CacrGrid):
    name = "cacr-table20"
    where = "CACR, Table 20"
    title = "CACR with the Euclidean and with the RBF cost"
    claim = "Both costs achieve comparable accuracy."
    expectation = "The same, within a point or two."
    remarks = f"{VARIANTS_REMARK} {SHARPER_REMARK}"
    variables = ("k", "cost")
    paper = PAPER_FIGURES
    comparisons = (
        Comparison("K = 1, euclidean", "K = 1, rbf", "level"),
        Comparison("K = 4, euclidean", "K = 4, rbf", "level"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        # The Euclidean cost is the default: without the flag it is the very run that other recipes need.
        flags = {"euclidean": (), "rbf": ("--cost", "rbf")}
        return [
            self.variant(setting, {"k": str(k), "cost": cost}, seed, *own, *words, k=k)
            for k, own in ((1, ()), (4, SHARPER))
            for cost, words in flags.items()
        ]

    def label(self, row: Mapping[str, str]) -> str:
        return f"K = {row['k']}, {row['cost']}"
