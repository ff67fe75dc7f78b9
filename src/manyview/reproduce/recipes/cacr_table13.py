"""CACR, Table 13: how sharply negatives are weighed."""

from collections.abc import Mapping

from manyview.reproduce.cacr_grid import CacrGrid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["NegativeSharpness"]

VALUES = ("0.5", "0.7", "0.9", "1.0", "2.0", "3.0")
LAPTOP = ("0.5", "0.9", "2.0", "3.0")
PAPER = {1: (81.66, 82.40, 83.07, 82.74, 83.73, 83.11), 4: (85.67, 86.19, 86.54, 86.41, 85.94, 85.69)}
PAPER_FIGURES = {
    f"K = {k}, t⁻ = {t}": value for k, values in PAPER.items() for t, value in zip(VALUES, values, strict=True)
}


class NegativeSharpness(CacrGrid):
    name = "cacr-table13"
    where = "CACR, Table 13"
    title = "CACR against t⁻, how much more the nearer negatives weigh"
    claim = "On CIFAR-10 a small t⁻ does worse; the best is near 2 with one positive and near 0.9 with four."
    expectation = (
        "t⁻ = 0.5 behind in both; where the best lies may move with batches of 160 and 64 instead of 768 and 128."
    )
    variables = ("k", "t_neg")
    x = ("t_neg", "t⁻")
    evenly = True
    paper = PAPER_FIGURES
    comparisons = (
        Comparison("K = 1, t⁻ = 2.0", "K = 1, t⁻ = 0.5"),
        Comparison("K = 1, t⁻ = 2.0", "K = 1, t⁻ = 3.0"),
        Comparison("K = 4, t⁻ = 0.9", "K = 4, t⁻ = 0.5"),
        Comparison("K = 4, t⁻ = 0.9", "K = 4, t⁻ = 3.0"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        values = LAPTOP if setting.scale == "laptop" else VALUES
        return [
            self.variant(setting, {"k": str(k), "t_neg": t}, seed, "--t-neg", t, k=k) for k in PAPER for t in values
        ]

    def label(self, row: Mapping[str, str]) -> str:
        return f"{self.series(row)}, t⁻ = {row['t_neg']}"

    def series(self, row: Mapping[str, str]) -> str:
        return f"K = {row['k']}"
