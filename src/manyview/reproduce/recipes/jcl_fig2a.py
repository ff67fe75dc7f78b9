"""JCL, Fig. 2(a): accuracy against the number of keys."""

from collections.abc import Mapping

from manyview.reproduce.families import JCL_REMARK, jcl_run
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Keys"]


class Keys(Grid):
    name = "jcl-fig2a"
    where = "JCL, Fig. 2(a)"
    title = "Accuracy against M′, the keys from which mean and covariance are estimated"
    claim = "More keys estimate the statistics better; M′ from 5 to 11 does reasonably well."
    expectation = "M′ = 5 ahead of M′ = 1, little more to gain from 11."
    remarks = (
        f"{JCL_REMARK} λ = 4, τ = 0.2 (Table 3). M′ = 1 is a run of MoCo v2: one key is its own mean and has no "
        "variance. The figure's values are not printed in the paper, so none stand beside ours."
    )
    paper_setup = "ImageNet-100, ResNet-18, 100 epochs"
    variables = ("keys",)
    x = ("keys", "keys per sample, M′")
    comparisons = (
        Comparison("M′ = 5", "M′ = 1"),
        Comparison("M′ = 5", "M′ = 2"),
        Comparison("M′ = 11", "M′ = 5", "level"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        values = (1, 2, 5, 11) if setting.scale == "laptop" else (1, 2, 3, 5, 7, 8, 9, 11)
        return [
            jcl_run(setting, {"keys": str(keys)}, seed, method="moco-v2" if keys == 1 else "jcl", keys=keys)
            for keys in values
        ]

    def label(self, row: Mapping[str, str]) -> str:
        return f"M′ = {row['keys']}"
