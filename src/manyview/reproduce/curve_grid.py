"""Recipes that draw a number against the course of the training."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from manyview.reproduce.families import CACR_FAMILY, Member, cacr_family, cacr_run
from manyview.reproduce.job import Job, Row
from manyview.reproduce.plots import Curve
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.rivals import of_one_seed
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store
from manyview.reproduce.training import Look, Training
from manyview.reproduce.verdict import Comparison, Difference, differences, judge, paired, spread

__all__ = ["CurveGrid"]

YES, NO = "✓", "✗"


class CurveGrid(Recipe):
    """One curve for each of the compared set-ups, in panels by the imbalance of the set."""

    imbalances: ClassVar[tuple[str, ...]] = ("none",)
    augment: ClassVar[str] = "cifar"
    column: ClassVar[str]
    looking: ClassVar[float] = 10.0
    """Seconds that the looks at one run take."""
    digits: ClassVar[int] = 1
    changes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Flags and values of a method instead of those for CIFAR-10."""
    unit: ClassVar[tuple[str, float]]
    """In which differences are told, and how many of them the column's own is."""

    def members(self, setting: Setting) -> Mapping[str, Member]:
        """The compared set-ups, by the name of their curve."""
        return {method: CACR_FAMILY[method] for method in cacr_family(setting)}

    @abstractmethod
    def look(self, setting: Setting) -> Look: ...

    @abstractmethod
    def pairs(self, setting: Setting) -> list[tuple[str, str]]:
        """Methods of which the paper has the first above the second, all the way."""

    def grows(self, setting: Setting, imbalance: str) -> tuple[str, ...]:
        """Methods whose curve ends above its first snapshot, by the paper."""
        return ()

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        return [
            self.one(setting, name, member, imbalance, seed)
            for seed in setting.seeds
            for imbalance in self.imbalances
            for name, member in self.members(setting).items()
        ]

    def one(self, setting: Setting, name: str, member: Member, imbalance: str, seed: int) -> Training:
        keys, look = {"method": name, "imbalance": imbalance}, self.look(setting)
        run = cacr_run(
            setting, keys, seed, member, *self.changes.get(name, ()), imbalance=imbalance,
            looks=(look,), augment=self.augment,
        )  # fmt: skip
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

    def shown_seeds(self, found: Found) -> str:
        ends = [self.at_end(found, imbalance) for imbalance in self.imbalances]
        return self.counted_seeds(found, [len(seeds) for end in ends for seeds in end.values()])

    def tables(self, found: Found) -> list[Table]:
        rows = []
        for imbalance in self.imbalances:
            for method, ends in self.at_end(found, imbalance).items():
                seeds = ", ".join(map(str, sorted(ends)))
                middle = self.halfway(found, imbalance, method)
                rows.append((method, imbalance, middle, spread(list(ends.values()), self.digits), seeds))
        header = ("", "imbalance", f"{self.column}, halfway", f"{self.column}, at the end", "seeds")
        curves = Table("Mean ± standard deviation over seeds", header, tuple(rows))
        values, last = self.at_snapshots(found)
        growth = differences(self.growing(found.setting, last), values, self.unit[0])
        return [curves, growth, self.leads_by_snapshot(found.setting, values, last)]

    def leads_by_snapshot(self, setting: Setting, values: Mapping[str, Mapping[int, float]], last: int) -> Table:
        """A line for each pair, as all its snapshots below each other are too many to read."""
        places = ["", *(f"snapshot {number}" for number in range(1, 1 + last))]
        rows = []
        for imbalance in self.imbalances:
            for first, second in self.pairs(setting):
                cells = [
                    marked(paired(*(values.get(at(method, imbalance, place), {}) for method in (first, second))))
                    for place in places
                ]
                if any(cells):
                    rows.append((f"{first} − {second}{of(imbalance)}", *cells))
        caption = (
            f"Paired differences over seeds, on average over the snapshots after the start and at each of them, in "
            f"{self.unit[0]}; by the paper all are above 0 ({YES} clearly so, {NO} clearly not)"
        )
        return Table(caption, ("", "on average", *places[1:]), tuple(rows))

    def verdict(self, found: Found) -> str:
        values, last = self.at_snapshots(found)
        return judge([*self.growing(found.setting, last), *self.leads(found.setting)], values)

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return of_one_seed(done, *self.pairs(found.setting)[0], lambda keys: keys["method"])

    def at_snapshots(self, found: Found) -> tuple[dict[str, dict[int, float]], int]:
        """The values after the start and their mean, by name and seed, and how many snapshots there are. They are
        counted, as those of methods with other batches lie at other steps."""
        steps: dict[tuple[str, str, str], list[int]] = {}
        for row in sorted(found[""], key=lambda row: int(row["step"])):
            if int(row["step"]):
                steps.setdefault((row["method"], row["imbalance"], row["seed"]), []).append(int(row["step"]))
        values: dict[str, dict[int, float]] = {}
        for row in found[""]:
            mine = steps.get((row["method"], row["imbalance"], row["seed"]), [])
            if int(row["step"]) in mine:
                value, seed = self.unit[1] * float(row[self.column]), int(row["seed"])
                name = at(row["method"], row["imbalance"], f"snapshot {1 + mine.index(int(row['step']))}")
                values.setdefault(name, {})[seed] = value
                over_all = values.setdefault(at(row["method"], row["imbalance"]), {})
                over_all[seed] = over_all.get(seed, 0.0) + value / len(mine)
        return values, max(map(len, steps.values()), default=0)

    def growing(self, setting: Setting, last: int) -> list[Comparison]:
        return [
            Comparison(at(method, imbalance, f"snapshot {last}"), at(method, imbalance, "snapshot 1"))
            for imbalance in self.imbalances
            for method in self.grows(setting, imbalance)
        ]

    def leads(self, setting: Setting) -> list[Comparison]:
        """One for each pair: snapshots of the same runs are no evidence of their own."""
        return [
            Comparison(at(first, imbalance), at(second, imbalance))
            for imbalance in self.imbalances
            for first, second in self.pairs(setting)
        ]

    def halfway(self, found: Found, imbalance: str, method: str) -> str:
        mine: list[Row] = [r for r in found[""] if (r["imbalance"], r["method"]) == (imbalance, method)]
        steps = sorted({int(row["step"]) for row in mine})
        middle = str(steps[len(steps) // 2])
        return spread([float(row[self.column]) for row in mine if row["step"] == middle], self.digits)


def at(method: str, imbalance: str, place: str = "") -> str:
    """What a value is called: that of a snapshot, or without a place their mean."""
    return f"{method}{of(imbalance)}{', ' if place else ''}{place}"


def of(imbalance: str) -> str:
    return "" if imbalance == "none" else f", {imbalance}"


def marked(difference: Difference | None) -> str:
    mark = {True: f" {YES}", False: f" {NO}", None: ""}
    return "" if difference is None else f"{difference}{mark[difference.supports('above')]}"
