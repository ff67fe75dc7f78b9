"""CMC, Table 4: after learning with all pairs of views, every single view is a good one."""

from collections.abc import Sequence

from manyview.reproduce.cmc_grid import REMARK, RGBD_SETUP, SMALL_PROBE, BesideRandom, BesideRandomGrid, rgbd_run
from manyview.reproduce.job import Job
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["EveryView"]

VIEWS = ("L", "ab", "depth", "normals")


class EveryView(BesideRandomGrid):
    name = "cmc-table4"
    where = "CMC, Table 4"
    title = "Each view alone, after learning with all pairs of L, ab, depth and normals"
    claim = "Learning with the full graph improves the representations of all four views over random ones."
    expectation = "Large gains for L, depth and normals; ab hardly shows the shape of a solid."
    remarks = (
        f"{REMARK} The full graph of four views in one run, each judged by the labels of `scenes`; the paper judges "
        "semantic segmentation on NYU Depth-V2 (pixel accuracy: random 45.5, 37.7, 51.1, 50.5; CMC 57.0, 49.6, 59.4, "
        "57.8 for L, ab, depth, normals)."
    )
    paper_setup = RGBD_SETUP
    variables = ("view", "encoder")
    comparisons = tuple(Comparison(view, f"{view}, random") for view in VIEWS)

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        looks = (BesideRandom(tuple((view,) for view in VIEWS), SMALL_PROBE),)
        return [rgbd_run(setting, {}, seed, ",".join(VIEWS), "--graph", "full", looks=looks)]

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return None  # each seed has one run
