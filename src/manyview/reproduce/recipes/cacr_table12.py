"""CACR, Table 12: how sharply positives are weighed."""

from collections.abc import Mapping

from manyview.reproduce.cacr_grid import CacrGrid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["PositiveSharpness"]

VALUES = (0.5, 0.7, 0.9, 1.0, 2.0, 3.0)
PAPER_FIGURES = {
    f"t⁺ = {t:g}": value for t, value in zip(VALUES, (86.07, 85.78, 85.90, 86.54, 84.85, 84.76), strict=True)
}


class PositiveSharpness(CacrGrid):
    name = "cacr-table12"
    where = "CACR, Table 12"
    title = "CACR (K = 4) against t⁺, how much more the farther positives weigh"
    claim = "On CIFAR-10 small values do best; t⁺ = 2 and 3 lose more than a point."
    expectation = "Level up to 1, a loss at 3."
    variables = ("t_pos",)
    x = ("t_pos", "t⁺")
    evenly = True
    paper = PAPER_FIGURES
    comparisons = (
        Comparison("t⁺ = 1", "t⁺ = 0.5", "level"),
        Comparison("t⁺ = 1", "t⁺ = 2"),
        Comparison("t⁺ = 1", "t⁺ = 3"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        # t⁺ = 1 is the default: without the flag it is the very run that other recipes need.
        flags = {t: () if t == 1.0 else ("--t-pos", f"{t:g}") for t in VALUES}
        return [self.variant(setting, {"t_pos": f"{t:g}"}, seed, *words) for t, words in flags.items()]

    def label(self, row: Mapping[str, str]) -> str:
        return f"t⁺ = {row['t_pos']}"
