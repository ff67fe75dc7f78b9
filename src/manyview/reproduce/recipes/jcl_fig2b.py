"""JCL, Fig. 2(b): accuracy against the weight of the covariance."""

from collections.abc import Mapping

from manyview.reproduce.families import JCL_REMARK, jcl_run
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Lambda"]


class Lambda(Grid):
    name = "jcl-fig2b"
    where = "JCL, Fig. 2(b)"
    title = "Accuracy against λ, the weight of the keys' covariance"
    claim = "Stable for λ from 0.2 to 4; without the covariance (λ = 0) and with far too much of it (10) worse."
    expectation = "Level from 0.2 to 4, and λ = 10 behind; λ = 0 within a point of the rest in so short a run."
    remarks = (
        f"{JCL_REMARK} M′ = 5, τ = 0.2 (Table 3). The figure's values are not printed "
        "in the paper, so none stand beside ours."
    )
    paper_setup = "ImageNet-100, ResNet-18, 100 epochs"
    variables = ("lam",)
    x = ("lam", "λ")
    evenly = True
    comparisons = (
        Comparison("λ = 4", "λ = 0"),
        Comparison("λ = 4", "λ = 0.2", "level"),
        Comparison("λ = 4", "λ = 1", "level"),
        Comparison("λ = 4", "λ = 10"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        values = (
            (0.0, 0.2, 1.0, 4.0, 10.0) if setting.scale == "laptop" else (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
        )
        return [jcl_run(setting, {"lam": f"{lam:g}"}, seed, lam=lam) for lam in values]

    def label(self, row: Mapping[str, str]) -> str:
        return f"λ = {row['lam']}"
