"""Recipes that compare accuracies of several set-ups, each with its own settings or each at the best of a search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyview.errors import UserError
from manyview.reproduce.job import Job, Store, Training
from manyview.reproduce.looks import HeldOut
from manyview.reproduce.plots import bars, curves, figure, show_points
from manyview.reproduce.recipe import Found, Name, Recipe, grouped, seeds_of
from manyview.reproduce.setting import Setting
from manyview.reproduce.setups import Flags, Pretraining
from manyview.reproduce.verdict import Comparison, Table, Values, spread


@dataclass(frozen=True, kw_only=True)
class Sweep(Recipe):
    """A row has numbers of one set-up, of which one is compared and drawn."""

    measured: tuple[str, ...] = ("knn", "linear")
    judged: str = "linear"  # the column that is compared and drawn
    scale: float = 1.0  # so many of it are one in the figure
    y: str = "linear accuracy, %"
    x: tuple[str, str] | None = None  # column and label of the horizontal axis; None draws a marker for each set-up
    evenly: bool = False
    series: Name = "ours".format_map  # the line or colour of a set-up in the figure
    short: Name | None = None  # its name on the axis where that is not `label`
    details: Mapping[str, Name] = field(default_factory=dict)  # columns between the label and the accuracies
    on_its_set: bool = False
    """Whether the paper's numbers stand beside those of its own images only, and not of `scenes`."""
    theirs: Table | None = None  # the paper's numbers, where these are not of set-ups that are run on a laptop
    derived: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Differences that are compared like accuracies, by their names: of which set-up from which other."""
    more: Callable[[Found, Values], Sequence[Comparison]] = lambda *_: ()  # comparisons that depend on what was found
    noted: Callable[[Found, Values], str] = lambda *_: ""

    def values(self, found: Found) -> Values:
        values = {
            label: {int(row["seed"]): float(row[self.judged]) / self.scale for row in rows}
            for label, rows in self.setups(found).items()
        }
        for name, (first, second) in self.derived.items():
            one, other = values.get(first, {}), values.get(second, {})
            if both := one.keys() & other.keys():
                values[name] = {seed: one[seed] - other[seed] for seed in both}
        return values

    def asked(self, found: Found) -> Sequence[Comparison]:
        return [*super().asked(found), *self.more(found, self.values(found))]

    def notes(self, found: Found) -> str:
        return self.noted(found, self.values(found))

    def published(self, setting: Setting) -> dict[str, float]:
        """The paper's numbers that may stand beside those of this setting."""
        there = {} if self.on_its_set and setting.on_scenes else self.labelled(setting)
        return {label: each.paper for label, each in there.items() if each.paper is not None}

    def tables(self, found: Found) -> list[Table]:
        setups, paper, rows = self.setups(found), self.published(found.setting), []
        for label in dict.fromkeys([*setups, *paper]):
            mine = setups.get(label, [])
            details = [name(mine[0]) if mine else "–" for name in self.details.values()]
            shown = (spread([float(row[name]) for row in mine]) for name in ("linear", "knn"))
            theirs = [f"{paper[label]:g}" if label in paper else "–"] if paper else []
            rows.append((label, *details, *shown, seeds_of(mine) or "none", *theirs))
        header = ("", *self.details, "linear, %", "kNN, %", "seeds", *["the paper's linear"] * bool(paper))
        ours = Table("Test accuracy: mean ± standard deviation over seeds", header, tuple(rows))
        return [ours, self.theirs] if self.theirs and not paper else [ours]

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        self.draw_values(axes, found)
        show_points(axes)
        return made

    def draw_values(self, axes: Axes, found: Found) -> None:
        paper, values = self.published(found.setting), self.values(found)
        lines: dict[str, dict[str, list[float]]] = {}
        points: dict[str, dict[str, float]] = {}
        for label, rows in self.setups(found).items():
            place = rows[0][self.x[0]] if self.x else (self.short or self.label)(rows[0])
            line = self.series(rows[0])
            lines.setdefault(line, {})[place] = list(values[label].values())
            if label in paper:
                points.setdefault(line, {})[place] = paper[label]
        if self.x is None:
            bars(axes, lines, y=self.y, paper=points)
            return
        unit = "".join({place.partition(" ")[2] for line in lines.values() for place in line})  # as in "200 epochs"
        ours = {name: {number(x): line[x] for x in line} for name, line in lines.items()}
        theirs = {name: {number(x): line[x] for x in line} for name, line in points.items()}
        curves(axes, ours, x=unit or self.x[1], y=self.y, paper=theirs, evenly=self.evenly)


def number(place: str) -> float:
    return float(place.partition(" ")[0])


@dataclass(frozen=True, kw_only=True)
class Search(Sweep):
    """On a laptop every method first has the same trials, judged on held-out training images; then the best of each
    is run at full length on other seeds. `runs` at the paper's scale have no trials; on a laptop they are the final
    ones, and the first of each method is also that of its trials."""

    tried: Mapping[str, Mapping[str, Sequence[Flags]]]
    """Flags to choose from, by table and method. Those of the last table are chosen from, the others come before."""
    share: float  # of a run's steps in a trial
    trial_seed: int
    told: Callable[[Flags], Mapping[str, object]] = dict  # a choice as columns
    runs: Callable[[Setting], Sequence[Pretraining]]
    trial_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Variables of the files of trials, where they are not those of the recipe."""

    def columns(self, table: str = "") -> tuple[str, ...]:
        return (*self.trial_columns.get(table, self.variables), "seed", "steps", *self.measured, "seconds")

    def check(self, setting: Setting, store: Store) -> None:
        if setting.scale == "laptop" and not setting.quick and self.trial_seed in setting.seeds:
            raise UserError(
                f"--seeds {','.join(map(str, setting.seeds))} has seed {self.trial_seed}, with which {self.name} runs "
                "its trials: final runs take others, as --seeds 1,2,3"
            )

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        if setting.scale == "paper":
            return super().jobs(setting, store)
        final, jobs = self.runs(setting), list[Job]()
        first = {each.keys()["method"]: each for each in reversed(final)}
        best: dict[str, Flags | None] = {}
        for table, tried in self.tried.items():
            trials: dict[str, list[Training]] = {}
            for method, choices in tried.items():
                setups = [self.trial(first[method], table, number) for number in range(len(choices))]
                mine = [self.chosen(each, choice, setting) for each, choice in zip(setups, choices, strict=True)]
                trials[method] = [each.job(self.trial_seed) for each in mine]
                best[method] = best_of(choices, trials[method], store)
            jobs += [trial for same in zip(*trials.values(), strict=True) for trial in same]
        ready = []
        for each in final:
            method = each.keys()["method"]
            waiting = replace(each, waits_for=f"the trials of {self.label(first[method].keys())}")
            ready.append(waiting if (choice := best[method]) is None else self.chosen(each, choice, setting))
        return [*jobs, *(each.job(seed) for seed in setting.seeds for each in ready)]

    def trial(self, final: Pretraining, table: str, number: int) -> Pretraining:
        numbered = {"trial": number} if "trial" in self.columns(table) else {}
        columns, lasts = {**final.columns, **numbered}, final.lasts.part(self.share)
        return replace(final, columns=columns, lasts=lasts, looks=(HeldOut(),), table=table)

    def chosen(self, setup: Pretraining, choice: Flags, setting: Setting) -> Pretraining:
        """The images of --quick may be too few for a queue."""
        own = {name: value for name, value in choice.items() if not (setting.quick and name == "queue_size")}
        return replace(setup, columns={**setup.columns, **self.told(own)}, flags=setup.flags | own)

    def tables(self, found: Found) -> list[Table]:
        header, tables = ("", *self.details, "linear, %", "kNN, %"), []
        for table in self.trial_tables(found):
            rows = [row for rows in grouped(found[table], self.label).values() for row in rows]
            names = (self.label, *self.details.values())
            shown = tuple((*(name(row) for name in names), row["linear"], row["knn"]) for row in rows)
            words = f"{table.capitalize()}: accuracy on held-out training images, seed {self.trial_seed}"
            tables.append(Table(words, header, shown))
        return [*tables, *super().tables(found)]

    def trial_tables(self, found: Found) -> list[str]:
        return [table for table in found.rows if table and found[table]]

    def draw(self, found: Found) -> Figure:
        """The trials, of which the best is marked, and the final runs."""
        tried = self.trial_tables(found)[-1:]
        made, panels = figure(max(1, len(tried) + bool(found[""])))
        for table in tried:
            methods = grouped(found[table], self.label).items()
            trials = {method: [float(row["linear"]) for row in rows] for method, rows in methods}
            bars(panels[0], {"linear": trials}, y=self.y, mark=max)  # a mean of unlike trials says nothing
            panels[0].set_title("held-out training images, trials (marked: the best)", fontsize=9)
        if found[""]:
            self.draw_values(panels[-1], found)
            panels[-1].set_title("test images, the best on other seeds" if tried else "test images", fontsize=9)
        for axes in panels:
            show_points(axes)
        return made

    def shown_seeds(self, found: Found) -> str:
        final = super().shown_seeds(found)
        if not self.trial_tables(found):
            return final  # as published
        return f"trials of seed {self.trial_seed}, {f'then {final}' if found[''] else 'minimum to maximum'}"


def best_of(choices: Sequence[Flags], trials: Sequence[Job], store: Store) -> Flags | None:
    """The one with the best linear accuracy, the first of equals, once all have been tried."""
    found = [store.rows_of(trial) for trial in trials]
    scores = [float(rows[0]["linear"]) for rows in found if rows]
    return choices[scores.index(max(scores))] if len(scores) == len(trials) else None
