"""CACR, Table 17: time of an iteration of several objectives in MoCo v2's frame."""

from matplotlib.figure import Figure

from manyview.reproduce.cost_grid import CostGrid, ratios
from manyview.reproduce.job import Job
from manyview.reproduce.plots import bars, figure
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Difference, are, over_seeds, tenor
from manyview.reproduce.weighing import Weighing

__all__ = ["TimeInMoCo"]

ROWS = (  # name, method, K, batch, the paper's seconds
    ("CL", "moco-v2", 1, 256, 0.837),
    ("AU-CL", "au-cl-moco", 1, 256, 0.840),
    ("HN-CL", "hn-cl-moco", 1, 256, 0.889),
    ("CACR", "cacr-moco", 1, 256, 0.871),
    ("CL", "vanilla", 4, 64, 3.550),
    ("CACR", "cacr-moco", 2, 128, 0.996),
    ("CACR", "cacr-moco", 3, 64, 1.017),
    ("CACR", "cacr-moco", 4, 64, 1.342),
)
RATIOS = (
    ("CACR with four positives over one", ("CACR", "4"), ("CACR", "1")),
    ("CL with four over CACR with four", ("CL", "4"), ("CACR", "4")),
    *((f"{name} over CL", (name, "1"), ("CL", "1")) for name in ("AU-CL", "HN-CL", "CACR")),
)
LIKE = 0.25
PAPER_FIGURES = {(name, str(count)): 1000 * seconds for name, _, count, _, seconds in ROWS}


class TimeInMoCo(CostGrid):
    name = "cacr-table17"
    where = "CACR, Table 17"
    title = "Time of an iteration of each objective in MoCo v2's frame"
    claim = (
        "The time of CACR grows slowly with its positives, at smaller batches, and not as that of CL does, which takes "
        "more than twice as long with four; with one positive the objectives take equally long."
    )
    expectation = (
        "Ours are not equal: here every view of AU-CL, HN-CL and CACR is a query with a gradient (Algorithm 3), which "
        "MoCo v2 has for one of its two."
    )
    remarks = (
        "The batches of the table, a queue of 4,096 and `tiny` on a laptop; ResNet-50, 224 px and 65,536 at the "
        "paper's scale. The paper does not say how CL has four positives; here it is `vanilla`, whose keys get no "
        "gradient."
    )
    paper_setup = "ResNet-50, 224 px, batches of 256 to 64, on a GPU"
    measured = ("milliseconds", "time of a step, ms", 1.0)
    x = "positives per query, K"
    paper = PAPER_FIGURES
    paper_words = "the paper's, ms (GPU)"

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        large: dict[str, int | str] = {"queue": 65_536, "backbone": "resnet50", "size": 224}
        size = {"queue": 4096} if setting.scale == "laptop" else large
        return [
            Weighing(
                {"method": name, "positives": str(count), "batch": str(batch), "seed": str(seed)},
                kind=method,
                settings={**size, "batch": batch, "keys": count},
            )
            for name, method, count, batch, _ in ROWS
        ]

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        labels = {(name, str(count)): f"{name} (K = {count}, N = {batch})" for name, _, count, batch, _ in ROWS}
        ours = {labels[kind]: list(each.values()) for kind, each in self.values(found).items()}
        theirs = {labels[kind]: value for kind, value in self.paper.items()}
        bars(axes, {"ours": ours}, y=self.measured[1], paper={"ours": theirs})
        for each in made.axes:  # also that of the paper's points
            each.set_ylim(bottom=0)
        return made

    def verdict(self, found: Found) -> str:
        times = self.values(found)
        if times.keys() < PAPER_FIGURES.keys():
            return "Not decided here: not all of the objectives were measured."
        ours_and_theirs = {
            words: (ratios(times[first], times[second]), PAPER_FIGURES[first] / PAPER_FIGURES[second])
            for words, first, second in RATIOS
        }
        if not all(ours for ours, _ in ours_and_theirs.values()):
            return "Not decided here: no repetition has all of the objectives."
        found_ratios = {words: (over_seeds(ours), theirs) for words, (ours, theirs) in ours_and_theirs.items()}
        alike = [like(ours, theirs) for ours, theirs in found_ratios.values()]
        words = "; ".join(
            f"{name} {ours.plain()} (the paper: {theirs:.2f})" for name, (ours, theirs) in found_ratios.items()
        )
        same, other = alike.count(True), alike.count(False)
        return (
            f"{tenor(alike)}: of {len(alike)} ratios {same or 'none'} {are(same)} the paper's (interval within "
            f"{LIKE:.0%} of it), {other or 'none'} {are(other)} clearly not. {words}."
        )


def like(ours: Difference, theirs: float) -> bool | None:
    """Whether a ratio is the paper's; None where the interval does not say."""
    low, high = ours.low / theirs - 1, ours.high / theirs - 1
    return True if low >= -LIKE and high <= LIKE else False if low > LIKE or high < -LIKE else None
