"""JCL, Fig. 2(c): accuracy against the temperature."""

from collections.abc import Mapping

from manyview.reproduce.families import JCL_REMARK, jcl_run
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Temperature"]


class Temperature(Grid):
    name = "jcl-fig2c"
    where = "JCL, Fig. 2(c)"
    title = "Accuracy against τ, the temperature of the softmax"
    claim = "Best around τ = 0.2; a higher temperature and a much lower one do worse."
    expectation = "The same shape: τ = 0.2 ahead of 0.05 and of 0.5."
    remarks = (
        f"{JCL_REMARK} M′ = 5, λ = 4 (Table 3). The figure's values are not printed in the paper, so none stand beside "
        "ours."
    )
    paper_setup = "ImageNet-100, ResNet-18, 100 epochs"
    variables = ("temperature",)
    x = ("temperature", "τ")
    evenly = True
    comparisons = (
        Comparison("τ = 0.2", "τ = 0.05"),
        Comparison("τ = 0.2", "τ = 0.3"),
        Comparison("τ = 0.2", "τ = 0.5"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        values = (
            (0.05, 0.1, 0.2, 0.3, 0.5) if setting.scale == "laptop" else (0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5)
        )
        return [jcl_run(setting, {"temperature": f"{tau:g}"}, seed, temperature=tau) for tau in values]

    def label(self, row: Mapping[str, str]) -> str:
        return f"τ = {row['temperature']}"
