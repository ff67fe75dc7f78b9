"""CACR, Table 14: time of an iteration against the number of positives."""

import statistics

from manyview.cost.fit import fit
from manyview.reproduce.cost_grid import CostGrid, ratios
from manyview.reproduce.job import Job
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import DECIDED, over_seeds
from manyview.reproduce.weighing import Weighing

__all__ = ["TimeAgainstK"]

SLOWLY = 0.9  # times the ratio of the views
COUNTS = (1, 2, 4, 6, 8, 10)
PAPER_FIGURES = {("CACR", str(k)): ms for k, ms in zip(COUNTS, (2.1, 2.6, 3.5, 4.5, 5.4, 6.4), strict=True)}


class TimeAgainstK(CostGrid):
    name = "cacr-table14"
    where = "CACR, Table 14"
    title = "Time of an iteration of CACR against K"
    claim = "Time grows with K more slowly than the number of views: ten positives take 3 times as long as one."
    expectation = "On a CPU, whose cores are busy with one view already, as fast as the number of views: 5.5 times."
    remarks = (
        "Batches of 128 as in the paper; `tiny` on a laptop, an AlexNet on a GPU in the paper. Views are ready made. "
        "The paper calls its figures the time of the loss, without a claim, which is ours to read from them; here it "
        "is that of a whole step. More slowly is judged as less than 0.9 times the ratio of the views, by "
        "its interval over repetitions."
    )
    paper_setup = "an AlexNet for 32 px, batches of 128, on a GPU"
    measured = ("milliseconds", "time of a step, ms", 1.0)
    x = "positives per query, K"
    paper = PAPER_FIGURES
    paper_words = "the paper's, ms (GPU)"

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        backbone = "tiny" if setting.scale == "laptop" else "alexnet-small"
        return [
            Weighing(
                {"method": "CACR", "positives": str(count), "batch": "128", "seed": str(seed)},
                kind="cacr",
                settings={"batch": 128, "keys": count, "backbone": backbone},
            )
            for count in (COUNTS[:2] if setting.quick else COUNTS)
        ]

    def verdict(self, found: Found) -> str:
        times = {float(count): values for (_, count), values in self.values(found).items()}
        if len(times) < 2:
            return "Not decided here: measured at one K only."
        slope, start = fit([(count, statistics.mean(values.values())) for count, values in times.items()])
        least, most = min(times), max(times)
        longer, views = ratios(times[most], times[least]), (1 + most) / (1 + least)
        if not longer:
            return f"Not decided here: no repetition has both K = {least:g} and K = {most:g}."
        less = over_seeds([SLOWLY * views - ratio for ratio in longer]).supports("above")
        return (
            f"{DECIDED[less]}: K = {most:g} takes {over_seeds(longer).plain()} times as long as K = {least:g} for "
            f"{views:.1f} times its views. One more positive costs {slope:.3g} ms, none would take {start:.3g} ms "
            "(fitted line)."
        )
