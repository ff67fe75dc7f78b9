"""Recipes that compare accuracies of several set-ups, each with its own settings or each at the best of a search."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyview import counter
from manyview.errors import UserError
from manyview.reproduce.job import Job, Row, Store, Training
from manyview.reproduce.plots import bars, curves, figure, show_points
from manyview.reproduce.recipe import Found, Name, Recipe, by_seed, grouped, of_one_seed, seeds_of
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Compared, Comparison, Table, compare, spread

__all__ = ["Search", "Space", "Sweep", "best", "widest"]

Y = "linear accuracy, %"
TRIALS = "trials"
_TAG = 0x5EA2C4  # keeps these draws apart from everybody else's


@dataclass(frozen=True, kw_only=True)
class Sweep(Recipe):
    """A row is told from others by `variables`; a set-up has one `label`, in tables, `paper` and `comparisons`."""

    variables: tuple[str, ...]
    label: Name
    measured: tuple[str, ...] = ("knn", "linear")
    x: tuple[str, str] | None = None  # column and label of the horizontal axis; None draws a marker for each set-up
    evenly: bool = False
    series: Name = "ours".format_map  # the line or colour of a set-up in the figure
    short: Name | None = None  # its name on the axis where that is not `label`
    paper: Mapping[str, float] = field(default_factory=dict)  # linear accuracy in the paper, by label
    on_its_set: bool = False
    """Whether the paper's numbers stand beside those of its own images only, and not of `scenes`."""
    comparisons: tuple[Comparison, ...] = ()

    def columns(self, table: str = "") -> tuple[str, ...]:
        return (*self.variables, "seed", "steps", *self.measured, "seconds")

    def axis(self, setting: Setting) -> tuple[str, str] | None:
        """The `x` of this scale."""
        return self.x

    def asked(self, setting: Setting) -> Sequence[Comparison]:
        """What the paper claims of the set-ups that are run at this scale."""
        return self.comparisons

    def published(self, setting: Setting) -> Mapping[str, float]:
        """The paper's numbers that may stand beside those of this setting."""
        return {} if self.on_its_set and setting.on_scenes else self.paper

    def tables(self, found: Found) -> list[Table]:
        setups, paper = self.setups(found), self.published(found.setting)
        rows = []
        for label in dict.fromkeys([*setups, *(paper if self.all_of_paper(found) else ())]):
            mine = setups.get(label, [])
            shown = [spread([float(row[name]) for row in mine]) for name in ("linear", "knn")]
            theirs = [f"{paper[label]:g}" if label in paper else "–"] if paper else []
            rows.append((label, *self.details(mine).values(), *shown, seeds_of(mine) or "none", *theirs))
        last = ["the paper's linear"] * bool(paper)
        header = ("", *self.details([]), "linear, %", "kNN, %", "seeds", *last)
        return [Table("Test accuracy: mean ± standard deviation over seeds", header, tuple(rows))]

    def all_of_paper(self, found: Found) -> bool:
        """Whether set-ups of the paper that were not run have a row too."""
        return True

    def details(self, rows: Sequence[Row]) -> dict[str, str]:
        """Columns between the label and the accuracies."""
        return {}

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        self.draw_accuracies(axes, found)
        return made

    def draw_accuracies(self, axes: Axes, found: Found) -> None:
        paper, axis, short = self.published(found.setting), self.axis(found.setting), self.short or self.label
        lines: dict[str, dict[str, list[float]]] = {}
        points: dict[str, dict[str, float]] = {}
        for row in found[""]:
            place = short(row) if axis is None else row[axis[0]]
            lines.setdefault(self.series(row), {}).setdefault(place, []).append(float(row["linear"]))
            if self.label(row) in paper:
                points.setdefault(self.series(row), {})[place] = paper[self.label(row)]
        if axis is None:
            bars(axes, lines, y=Y, paper=points)
        else:
            ours = {name: {float(x): line[x] for x in line} for name, line in lines.items()}
            theirs = {name: {float(x): line[x] for x in line} for name, line in points.items()}
            curves(axes, ours, x=axis[1], y=Y, paper=theirs, evenly=self.evenly)
        show_points(axes)

    def shown_seeds(self, found: Found) -> str:
        return self.counted_seeds(found, [len(rows) for rows in self.setups(found).values()])

    def compared(self, found: Found) -> list[Compared]:
        return compare(self.asked(found.setting), self.values(found))

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return widest(done, self.asked(found.setting), self.values(found), self.label)

    def values(self, found: Found) -> dict[str, dict[int, float]]:
        """Linear accuracy by set-up and seed."""
        return {label: by_seed(rows, "linear") for label, rows in self.setups(found).items()}

    def setups(self, found: Found) -> dict[str, list[Row]]:
        return grouped(found[""], self.label)


@dataclass(frozen=True, kw_only=True)
class Search(Sweep):
    """On a laptop every method first has the same trials, judged on held-out training images; then the best of each
    is run at full length on other seeds. `runs` are those at the paper's scale, which have no trials."""

    trials: Callable[[Setting], Mapping[str, Sequence[Training]]]  # by method
    final: Callable[[Setting, int, Mapping[str, Training | None]], Sequence[Job]]
    """The runs of one seed, by the best trial of each method; without one they wait."""
    before: Callable[[Setting], Sequence[Training]] = lambda _: ()  # trials by which the common set-up was chosen
    trial_seed: int
    method: Name  # of a row, as the tables have it
    settings: Name  # what was tried
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
        trials = self.trials(setting)
        chosen = {method: best(mine, store) for method, mine in trials.items()}
        in_turn = [trial for same in zip(*trials.values(), strict=True) for trial in same]
        final = [job for seed in setting.seeds for job in self.final(setting, seed, chosen)]
        return [*self.before(setting), *in_turn, *final]

    def tables(self, found: Found) -> list[Table]:
        header, tables = ("", "settings", "linear, %", "kNN, %"), []
        for table in self.trial_tables(found):
            rows = [row for rows in grouped(found[table], self.method).values() for row in rows]
            shown = tuple((self.method(row), self.settings(row), row["linear"], row["knn"]) for row in rows)
            words = f"{table.capitalize()}: accuracy on held-out training images, seed {self.trial_seed}"
            tables.append(Table(words, header, shown))
        return [*tables, *super().tables(found)]

    def trial_tables(self, found: Found) -> list[str]:
        return [table for table in found.rows if table and found[table]]

    def details(self, rows: Sequence[Row]) -> dict[str, str]:
        return {"settings": self.settings(rows[0]) if rows else "–"}

    def draw(self, found: Found) -> Figure:
        """The trials, of which the best is marked, and the final runs."""
        tried = self.trial_tables(found)[-1:]
        made, panels = figure(max(1, len(tried) + bool(found[""])))
        for table, axes in zip(tried, panels, strict=False):
            trials = {
                method: [float(row["linear"]) for row in rows]
                for method, rows in grouped(found[table], self.method).items()
            }
            bars(axes, {"linear": trials}, y=Y, mark=max)  # a mean of unlike trials says nothing
            axes.set_title("held-out training images, trials (marked: the best)", fontsize=9)
            show_points(axes)
        if found[""]:
            self.draw_accuracies(panels[-1], found)
            panels[-1].set_title("test images, the best on other seeds" if tried else "test images", fontsize=9)
        return made

    def shown_seeds(self, found: Found) -> str:
        final = super().shown_seeds(found)
        if not self.trial_tables(found):
            return final  # as published
        return f"trials of seed {self.trial_seed}, {f'then {final}' if found[''] else 'minimum to maximum'}"


@dataclass(frozen=True)
class Space:
    """Values to choose from, by flag; the first of each are those of trial 0."""

    choices: Mapping[str, tuple[str, ...]]

    def draw(self, trial: int) -> dict[str, str]:
        """Each flag on its own, so that one more flag leaves the draws of the others as they are."""
        if trial == 0:
            return {flag: values[0] for flag, values in self.choices.items()}
        drawn = {}
        for flag, values in self.choices.items():
            word = int.from_bytes(hashlib.blake2b(flag.encode(), digest_size=6).digest())
            drawn[flag] = values[int(counter.bits(_TAG, word, trial) % len(values))]
        return drawn


def best(trials: Sequence[Training], store: Store) -> Training | None:
    """The one with the best linear accuracy, the first of equals, once all have been tried."""
    found = [store.rows_of(trial) for trial in trials]
    if not all(found):
        return None
    scores = [float(rows[0]["linear"]) for rows in found]
    return trials[scores.index(max(scores))]


def widest(
    done: Sequence[Job], comparisons: Sequence[Comparison], values: Mapping[str, Mapping[int, float]], name: Name
) -> tuple[Job, Job] | None:
    """Of the set-ups that are compared the two that differ most here, as far as both are jobs. `values` are by set-up
    and seed."""
    apart: list[tuple[float, tuple[Job, Job]]] = []
    for each in comparisons:
        difference, jobs = each.difference(values), of_one_seed(done, each.first, each.second, name)
        if difference is not None and jobs is not None:
            apart.append((abs(difference.mean), jobs))
    return max(apart, key=lambda pair: pair[0])[1] if apart else None
