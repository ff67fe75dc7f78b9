"""CMC, Fig. 4: more views, one after the other, and what the encoder of L gains by them."""

from collections.abc import Mapping

from manyview.reproduce.cmc_grid import REMARK, RGBD_SETUP, SMALL_PROBE, CmcGrid, cmc_looks, rgbd_run
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["MoreViews"]

ORDER = ("L", "ab", "depth", "normals")


class MoreViews(CmcGrid):
    name = "cmc-fig4"
    where = "CMC, Fig. 4"
    title = "Accuracy of the encoder of L, learnt with one to four views"
    claim = "As views are added in the order L, ab, depth, normals, the representation of L becomes better with each."
    expectation = "Depth and normals, which show shape alone, help L to tell solids; ab little."
    remarks = (
        f"{REMARK} L is the core view, and only its features are judged, by the labels of `scenes`: the paper judges "
        "semantic segmentation on NYU Depth-V2, of which no figure is printed. A single view meets itself in the bank."
    )
    paper_setup = RGBD_SETUP
    variables = ("count",)
    x = ("count", "views, in the order L, ab, depth, normals")
    comparisons = (
        Comparison("2 views", "1 view"),
        Comparison("3 views", "2 views"),
        Comparison("4 views", "3 views"),
        Comparison("4 views", "1 view"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        looks = cmc_looks(setting, ("L",), SMALL_PROBE)
        return [
            rgbd_run(setting, {"count": str(count)}, seed, ",".join(ORDER[:count]), "--graph", "core", looks=looks)
            for count in range(1, len(ORDER) + 1)
        ]

    def label(self, row: Mapping[str, str]) -> str:
        return f"{row['count']} view{'s' * (row['count'] != '1')}"
