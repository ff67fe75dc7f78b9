"""Recipes that draw a number against the course of the training."""

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from manyview.reproduce.families import CACR_FAMILY, cacr_family, cacr_run
from manyview.reproduce.job import Job, Row
from manyview.reproduce.plots import Curve
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store
from manyview.reproduce.training import Look, Training
from manyview.reproduce.verdict import spread

__all__ = ["CurveGrid"]


class CurveGrid(Recipe):
    """One curve for each of CACR's rivals, in panels by the imbalance of the set."""

    imbalances: ClassVar[tuple[str, ...]] = ("none",)
    augment: ClassVar[str] = "cifar"
    column: ClassVar[str]
    looking: ClassVar[float] = 10.0
    """Seconds that the looks at one run take."""
    digits: ClassVar[int] = 1

    @abstractmethod
    def look(self, setting: Setting) -> Look: ...

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        return [
            self.one(setting, method, imbalance, seed)
            for seed in setting.seeds
            for imbalance in self.imbalances
            for method in cacr_family(setting)
        ]

    def one(self, setting: Setting, method: str, imbalance: str, seed: int) -> Training:
        keys, look = {"method": method, "imbalance": imbalance}, self.look(setting)
        run = cacr_run(
            setting, keys, seed, CACR_FAMILY[method], imbalance=imbalance, looks=(look,), augment=self.augment
        )
        return replace(run, seconds=run.seconds + self.looking)

    def at_end(self, found: Found, imbalance: str) -> dict[str, dict[int, float]]:
        """The last value of each curve, by method and seed."""
        last: dict[str, dict[int, float]] = {}
        for row in sorted(found[""], key=lambda row: int(row["step"])):
            if row["imbalance"] == imbalance:
                last.setdefault(row["method"], {})[int(row["seed"])] = float(row[self.column])
        return last

    def lines(self, found: Found, imbalance: str) -> list[Curve]:
        """Over optimizer steps of equally many views on a laptop, over epochs as in the paper."""
        time = "step" if found.setting.scale == "laptop" else "epoch"
        points: dict[str, dict[float, list[float]]] = {}
        for row in found[""]:
            if row["imbalance"] == imbalance:
                points.setdefault(row["method"], {}).setdefault(float(row[time]), []).append(float(row[self.column]))
        return [Curve(*each) for each in points.items()]

    def axis(self, found: Found) -> str:
        return "optimizer steps" if found.setting.scale == "laptop" else "epochs"

    def tables(self, found: Found) -> list[Table]:
        rows = []
        for imbalance in self.imbalances:
            for method, values in self.at_end(found, imbalance).items():
                seeds = ", ".join(map(str, sorted(values)))
                at = self.halfway(found, imbalance, method)
                rows.append((method, imbalance, at, spread(list(values.values()), self.digits), seeds))
        header = ("", "imbalance", f"{self.column}, halfway", f"{self.column}, at the end", "seeds")
        return [Table("Mean ± standard deviation over seeds", header, tuple(rows))]

    def halfway(self, found: Found, imbalance: str, method: str) -> str:
        mine: list[Row] = [r for r in found[""] if (r["imbalance"], r["method"]) == (imbalance, method)]
        steps = sorted({int(row["step"]) for row in mine})
        middle = str(steps[len(steps) // 2])
        return spread([float(row[self.column]) for row in mine if row["step"] == middle], self.digits)
