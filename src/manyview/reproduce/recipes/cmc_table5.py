"""CMC, Table 5: to contrast two views, or to predict one from the other."""

from collections.abc import Mapping

from manyview.reproduce.cmc_grid import REMARK, RGBD_SETUP, SMALL_PROBE, CmcGrid, cmc_looks, rgbd_run
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Predicting"]

WORDS = {"cmc": "contrastive", "predictive": "predictive"}
PAPER_FIGURES = {
    "contrastive, depth": 58.3,
    "predictive, depth": 55.5,
    "contrastive, normals": 60.1,
    "predictive, normals": 58.4,
}


class Predicting(CmcGrid):
    name = "cmc-table5"
    where = "CMC, Table 5"
    title = "Contrastive against predictive learning, judged by the encoder of L"
    claim = "To contrast L with depth or normals gives a better encoder of L than to predict one from the other."
    expectation = "Contrastive ahead for both pairs."
    remarks = (
        f"{REMARK} Predictions are judged by squared differences; with their decoders they take three times as long "
        "for the same images. The paper learns on NYU Depth-V2 and judges on STL-10, another set and another task; "
        "here both are `scenes`, whose labels are kinds of solids: depth and normals all but show these, which may be "
        "why prediction does well (a guess made afterwards, not tested)."
    )
    paper_setup = RGBD_SETUP
    variables = ("pair", "method")
    paper = PAPER_FIGURES
    comparisons = (
        Comparison("contrastive, depth", "predictive, depth"),
        Comparison("contrastive, normals", "predictive, normals"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        looks = cmc_looks(setting, ("L",), SMALL_PROBE)
        return [
            rgbd_run(setting, {"pair": pair, "method": method}, seed, f"L,{pair}", method=method, looks=looks)
            for pair in ("depth", "normals")
            for method in WORDS
        ]

    def label(self, row: Mapping[str, str]) -> str:
        return f"{WORDS[row['method']]}, {row['pair']}"
