"""JCL, App. B: memory of a step against the number of positive keys."""

from collections.abc import Mapping

from manyview.cost.fit import fit
from manyview.cost.point import ALL_BRANCHES
from manyview.reproduce.cost_grid import CostGrid
from manyview.reproduce.job import Job
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import DECIDED, over_seeds
from manyview.reproduce.weighing import Weighing

__all__ = ["Memory"]

KINDS = {"jcl": "JCL", "vanilla": "vanilla, no gradient to keys", ALL_BRANCHES: "vanilla, all branches"}
MIB = float(2**20)
HALF = 0.5  # of the memory that a key of all branches needs: what is clearly below counts as less


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
        "laptop; ResNet-50, 224 px, 128 images and a queue of 65,536 at the paper's scale. The paper gives no figures; "
        "less is judged as less than half, for one more key, of what it costs with all branches. All keys are encoded "
        "in one pass; `--key-passes` takes several, and less memory."
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
        slopes = {name: self.slopes(found, name) for name in KINDS.values()}
        if not all(slopes.values()):
            return "Not decided here: not all of the three were measured."
        words = "; ".join(f"{name} {over_seeds(list(each.values()))} MiB" for name, each in slopes.items())
        ours, without, everything = slopes.values()
        less, frugal = (less_than_half(kind, everything) for kind in (ours, without))
        also = ", but vanilla without a gradient to its keys is frugal too: it is the gradient that costs"
        return f"{DECIDED[less]}{also if less and frugal else ''}. One more key costs (fitted line): {words}."

    def slopes(self, found: Found, name: str) -> dict[int, float]:
        """What one more key costs, by repetition."""
        points: dict[int, list[tuple[float, float]]] = {}
        for (kind, count), values in self.values(found).items():
            for seed, value in values.items():
                if kind == name:
                    points.setdefault(seed, []).append((float(count), value))
        return {seed: fit(each)[0] for seed, each in points.items() if len(each) > 1}


def less_than_half(kind: Mapping[int, float], other: Mapping[int, float]) -> bool | None:
    both = sorted(kind.keys() & other.keys())
    return over_seeds([HALF * other[seed] - kind[seed] for seed in both]).supports("above") if both else None
