"""CACR, Fig. 3–5: the conditional entropy of the negative weights while an encoder learns."""

from typing import ClassVar

from matplotlib.figure import Figure

from manyview.reproduce.curve_grid import CurveGrid
from manyview.reproduce.families import CMC_REMARK, cacr_family
from manyview.reproduce.looks import EntropyCurve
from manyview.reproduce.plots import curves, figure
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.training import Look

__all__ = ["Entropy", "EntropyExponential", "EntropyExponentialOfCifar100", "EntropyOfCifar100"]

FASTEST = "CACR (K = 4)"
FOR_CIFAR100 = {"CACR (K = 1)": ("--t-neg", "3.0"), FASTEST: ("--t-neg", "2.0")}  # C.1
REMARKS = (
    "The entropy H(X⁻|X) of Eq. 8 with t⁻ = 2 for all methods, on the same 5 views of 512 test images in batches of "
    "256, at six snapshots of a run (at the paper's scale of all test images, at 20). An encoder that finds all images "
    "alike has the largest entropy too, as at the start: uniformity, in the file of results, tells the two apart. "
    "Growing is judged from the first of these snapshots to the last, on the uneven set for CACR alone (the paper has "
    "CL fall there); fastest as above the others on average over the snapshots. Runs of 600 steps of 320 views with lr "
    "0.06 on a laptop, compared at equal steps and so at equally many views; the paper's axis is epochs, in each of "
    "which K = 4 takes more steps than K = 1 (here 2.5 times as many, there 6). The figure's values are not printed in "
    f"the paper. {CMC_REMARK}"
)


class Entropy(CurveGrid):
    name = "cacr-fig3"
    where = "CACR, Fig. 3"
    title = "Conditional entropy of the negatives during the training, on the whole set and an uneven part of it"
    claim = "The entropy grows towards its maximum; CACR (K = 4) is fastest, and stays high on the uneven set."
    expectation = "CACR (K = 4) ends above CL and CMC; curves fall from the maximum at the start before they rise."
    remarks = REMARKS
    paper_setup = "CIFAR-10, AlexNet, 200 epochs (C.1)"
    imbalances: ClassVar[tuple[str, ...]] = ("none", "linear")
    classes = 10
    column = "entropy"
    digits = 3
    unit = ("hundredths of a nat", 100.0)

    def columns(self, table: str = "") -> tuple[str, ...]:
        return (
            "method",
            "imbalance",
            "seed",
            "steps",
            "step",
            "epoch",
            "entropy",
            "max_entropy",
            "uniformity",
            "seconds",
        )

    def pairs(self, setting: Setting) -> list[tuple[str, str]]:
        return [(FASTEST, method) for method in cacr_family(setting) if method != FASTEST]

    def grows(self, setting: Setting, imbalance: str) -> tuple[str, ...]:
        return cacr_family(setting) if imbalance == "none" else (FASTEST,)

    def look(self, setting: Setting) -> Look:
        return EntropyCurve()

    def draw(self, found: Found) -> Figure:
        made, panels = figure(len(self.imbalances))
        for axes, imbalance in zip(panels, self.imbalances, strict=True):
            title = "whole set" if imbalance == "none" else f"{imbalance} imbalance"
            words = "conditional entropy, nats"
            curves(axes, self.lines(found, imbalance), x=self.axis(found), y=words, title=title)
            for most in {float(row["max_entropy"]) for row in found[""]}:
                axes.axhline(most, color="#777", linestyle=":", linewidth=1.2)
                axes.annotate(
                    "maximum", (1, most), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
                )
        return made


class EntropyOfCifar100(Entropy):
    name = "cacr-fig4"
    where = "CACR, Fig. 4"
    title = "The same on CIFAR-100: conditional entropy on the whole set and an uneven part of it"
    paper_setup = "CIFAR-100, AlexNet, 200 epochs (C.1)"
    remarks = f"Give it CIFAR-100 (--data cifar100:DIR). {REMARKS}"
    augment, changes = "cifar100", FOR_CIFAR100
    classes = 100


class EntropyExponential(Entropy):
    name = "cacr-fig5"
    where = "CACR, Fig. 5"
    title = "Conditional entropy of the negatives on a set with exponential imbalance"
    imbalances = ("exponential",)


class EntropyExponentialOfCifar100(EntropyOfCifar100):
    name = "cacr-fig5-cifar100"
    where = "CACR, Fig. 5 (CIFAR-100)"
    title = "The same on CIFAR-100: conditional entropy on a set with exponential imbalance"
    imbalances = ("exponential",)
