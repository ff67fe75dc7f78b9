"""CACR, Table 11: without one conditional distribution, or both."""

from manyview.reproduce.cacr_grid import SHARPER, SHARPER_REMARK, VARIANTS_REMARK, CacrGrid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Without"]

VARIANTS = {
    "CACR": (),
    "without π⁺": ("--positive-weights", "uniform"),
    "without π⁻": ("--negative-weights", "uniform"),
    "UAUR": ("--positive-weights", "uniform", "--negative-weights", "uniform"),
}
PAPER_FIGURES = dict(zip(VARIANTS, (85.94, 85.22, 78.49, 77.17), strict=True))


class Without(CacrGrid):
    name = "cacr-table11"
    where = "CACR, Table 11"
    title = "CACR (K = 4) without its conditional distributions"
    claim = "Without π⁺ a little is lost, without π⁻ seven points, without both a little more."
    expectation = "π⁻ matters as much as in the paper; π⁺ too little to be seen in so short a run."
    remarks = f"{VARIANTS_REMARK} {SHARPER_REMARK}"
    variables = ("variant",)
    paper = PAPER_FIGURES
    comparisons = (
        Comparison("CACR", "without π⁺"),
        Comparison("CACR", "without π⁻"),
        Comparison("without π⁺", "without π⁻"),
        Comparison("without π⁻", "UAUR"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        return [self.variant(setting, {"variant": name}, seed, *SHARPER, *flags) for name, flags in VARIANTS.items()]
