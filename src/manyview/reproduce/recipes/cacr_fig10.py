"""CACR, Fig. 10: accuracy during the training."""

from matplotlib.figure import Figure

from manyview.evaluate.linear import Linear
from manyview.evaluate.linear_adam import LinearAdam
from manyview.reproduce.curve_grid import CurveGrid
from manyview.reproduce.families import CMC_REMARK, cacr_family
from manyview.reproduce.looks import AccuracyCurve
from manyview.reproduce.plots import curves, figure
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.training import Look

__all__ = ["Efficiency"]


class Efficiency(CurveGrid):
    name = "cacr-fig10"
    where = "CACR, Fig. 10"
    title = "Linear accuracy during the training"
    claim = "CACR is ahead of the others at every epoch."
    expectation = "Differences of a point or less, whose order changes on the way."
    remarks = (
        "A classifier is fitted at each snapshot of the runs that `cacr-fig3` needs: 600 steps of 320 views with lr "
        "0.06 on a laptop; the learning rate still falls on its cosine on the way. Judged on average over the "
        "snapshots, at equal steps: the paper's axis is epochs, in each of which K = 4 takes more steps than K = 1. "
        f"The figure's values are not printed in the paper. {CMC_REMARK}"
    )
    paper_setup = "CIFAR-10, AlexNet, 200 epochs (C.1)"
    classes = 10
    column = "linear"
    looking = 180.0
    unit = ("points of linear accuracy", 1.0)

    def columns(self, table: str = "") -> tuple[str, ...]:
        return ("method", "imbalance", "seed", "steps", "step", "epoch", "linear", "seconds")

    def pairs(self, setting: Setting) -> list[tuple[str, str]]:
        one, four = (f"CACR (K = {k})" for k in (1, 4))
        others = [method for method in cacr_family(setting) if method not in (one, four)]
        return [(four, rival) for rival in others] + [(one, rival) for rival in others if "K = 4" not in rival]

    def look(self, setting: Setting) -> Look:
        return AccuracyCurve(Linear() if setting.scale == "laptop" else LinearAdam())

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        curves(axes, self.lines(found, "none"), x=self.axis(found), y="linear accuracy, %")
        return made
