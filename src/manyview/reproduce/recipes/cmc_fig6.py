"""CMC, Fig. 6: accuracy against the number of negatives."""

from collections.abc import Mapping

from manyview.reproduce.cmc_grid import ALEXNET_PROBE, REMARK, CmcGrid, cmc_looks, cmc_run
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Negatives"]


class Negatives(CmcGrid):
    name = "cmc-fig6"
    where = "CMC, Fig. 6"
    title = "Accuracy against m, the negatives drawn for each anchor"
    claim = "More negatives are better, from 64 to 8,192, with less and less to gain."
    expectation = "64 behind the others."
    remarks = f"{REMARK} But for m, that is; {{L, ab}} by NCE, as in the paper. The figure's values are not printed."
    paper_setup = "ImageNet-100, half an AlexNet for each view, 200 epochs (E.2)"
    variables = ("draw",)
    x = ("draw", "negatives, m")
    evenly = True
    comparisons = (Comparison("m = 512", "m = 64"), Comparison("m = 4096", "m = 512"))

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        values = (64, 512, 4096) if setting.scale == "laptop" else [2**power for power in range(6, 14)]
        few = [min(value, 16) for value in values] if setting.quick else values
        return [
            cmc_run(setting, {"draw": str(value)}, seed, "lab", "--draw", str(draw), "--contrast", "nce",
                    looks=cmc_looks(setting, probe=ALEXNET_PROBE), preset="paper-alexnet")
            for value, draw in zip(values, few, strict=True)
        ]  # fmt: skip

    def label(self, row: Mapping[str, str]) -> str:
        return f"m = {row['draw']}"
