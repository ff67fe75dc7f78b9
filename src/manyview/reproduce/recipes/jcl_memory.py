"""JCL, App. B: memory of a step against the number of positive keys."""

from manyview.cost.fit import fit
from manyview.cost.point import ALL_BRANCHES
from manyview.reproduce.cost_grid import CostGrid, mean
from manyview.reproduce.job import Job
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.weighing import Weighing

__all__ = ["Memory"]

KINDS = {"jcl": "JCL", "vanilla": "vanilla, no gradient to keys", ALL_BRANCHES: "vanilla, all branches"}
MIB = float(2**20)
HALF = 0.5  # a key that needs less than half of the memory of another kind's


class Memory(CostGrid):
    name = "jcl-memory"
    where = "JCL, App. B and author response R2.1"
    title = "Memory of a step against M, for vanilla multi-key contrast and JCL"
    claim = "Vanilla carries a batch that is M times larger; that of JCL stays the same, so it needs less memory."
    expectation = (
        "All branches: memory grows with every key by what the backward pass keeps. JCL, and vanilla without a "
        "gradient to the keys, alike and nearly flat."
    )
    remarks = (
        "Peak resident memory of a process beyond its size before the first step (on a GPU: peak allocated), measured "
        "in a fresh process for each point: batches of 256 images of 32 px with `tiny` and a queue of 4,096 on a "
        "laptop; ResNet-50, 224 px, 128 images and a queue of 65,536 at the paper's scale. The paper gives no figures."
    )
    paper_setup = "ResNet-50, 224 px, batches of 128, on a GPU"
    measured = ("step_bytes", "memory of a step, MiB", MIB)
    x = "positive keys, M"

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        laptop = setting.scale == "laptop"
        counts = (1, 2) if setting.quick else (1, 2, 4, 6, 8, 12, 16) if laptop else (1, 2, 3, 4, 5)
        large: dict[str, int | str] = {"batch": 128, "queue": 65_536, "backbone": "resnet50", "size": 224}
        size = {"batch": 256, "queue": 4096} if laptop else large
        return [
            Weighing(
                {"method": name, "positives": str(count), "batch": str(size["batch"]), "seed": str(seed)},
                kind=kind,
                settings={**size, "keys": count},
            )
            for count in counts
            for kind, name in KINDS.items()
        ]

    def verdict(self, found: Found) -> str:
        slopes = {}
        for name in KINDS.values():
            values = [(float(count), mean(each)) for (kind, count), each in self.values(found).items() if kind == name]
            if len(values) > 1:
                slopes[name] = fit(values)[0]
        if len(slopes) < len(KINDS):
            return "Not decided here: not all of the three were measured."
        words = "; ".join(f"{name} {slope:+.1f} MiB" for name, slope in slopes.items())
        ours, without, everything = slopes.values()
        less = ours < HALF * everything
        sentence = "The claim holds here" if less else "The claim does not hold here"
        if less and without < HALF * everything:
            sentence += ", but vanilla without a gradient to its keys is frugal too: it is the gradient that costs"
        return f"{sentence}. One more key costs (fitted line): {words}."
