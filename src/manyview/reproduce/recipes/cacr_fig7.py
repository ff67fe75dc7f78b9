"""CACR, Fig. 7: where positives and negatives lie around a query, at three times of the training."""

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Circle

from manyview.reproduce.closeup import Map
from manyview.reproduce.families import CACR_FAMILY, cacr_run
from manyview.reproduce.job import Job, Row
from manyview.reproduce.plots import legend
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.rivals import of_one_seed
from manyview.reproduce.setting import Setting
from manyview.reproduce.store import Store

__all__ = ["AroundAQuery"]

METHODS = ("CL", "CACR (K = 1)")
ROLES = {"negative": "#c93c37", "positive": "#3b7ddd", "query": "#2f9e63"}
RANGE = 10
T_NEG = 2.0  # of CACR with one positive on CIFAR-10
EPOCHS = (1, 20, 200)


class AroundAQuery(Recipe):
    name = "cacr-fig7"
    where = "CACR, Fig. 7"
    title = "t-SNE around a query at three times of the training, CL above CACR"
    claim = "Positives come closer and negatives are pushed away, by CACR more evenly than by CL."
    expectation = "Positives near the query in both; no difference in evenness that one query could show."
    remarks = (
        "A batch of 128 test images; green is the query, blue its four positives, red the negatives. Only points "
        "within 10 of the query are drawn, and a dashed circle of radius t⁻ = 2, as in the paper; t-SNE keeps "
        "neighbourhoods, not distances, so that the circle has no meaning beyond the eye's: distances are in the "
        "table. On a laptop the times are the first snapshot of six, the one past the middle and the last."
    )
    paper_setup = "CIFAR-10, AlexNet, epochs 1, 20 and 200 (C.1); a snapshot of each epoch, 22 GB a run"

    def columns(self, table: str = "") -> tuple[str, ...]:
        return ("method", "seed", "steps", "step", "epoch", "role", "x", "y", "distance", "seconds")

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        look = Map() if setting.scale == "laptop" else Map(epochs=EPOCHS)
        return [
            cacr_run(setting, {"method": method}, seed, CACR_FAMILY[method], looks=(look,), points=EPOCHS[-1])
            for seed in setting.seeds
            for method in METHODS
        ]

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return of_one_seed(done, METHODS[1], METHODS[0], lambda keys: keys["method"])

    def groups(self, found: Found) -> dict[tuple[str, int], list[Row]]:
        """The points of the first seed, by method and step."""
        grouped: dict[tuple[str, int], list[Row]] = {}
        for row in found[""]:
            if row["seed"] == found[""][0]["seed"]:
                grouped.setdefault((row["method"], int(row["step"])), []).append(row)
        return grouped

    def tables(self, found: Found) -> list[Table]:
        rows = []
        for (method, step), points in self.groups(found).items():
            near, far = (distances(points, role) for role in ("positive", "negative"))
            rows.append((method, str(step), f"{statistics.mean(near):.3f}", f"{statistics.mean(far):.3f}",
                         f"{statistics.stdev(far):.3f}"))  # fmt: skip
        header = ("", "step", "positives, mean", "negatives, mean", "negatives, deviation")
        return [Table("Squared distances from the query (first seed)", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        made = Figure(figsize=(9.5, 6.4), layout="constrained")
        panels = made.subplots(2, 3, squeeze=False, sharex=True, sharey=True)
        grouped, laptop = self.groups(found), found.setting.scale == "laptop"
        for line, method in zip(panels, METHODS, strict=True):
            steps = sorted(step for name, step in grouped if name == method)
            for axes, step in zip(line, steps, strict=False):
                for role, colour in ROLES.items():
                    points = [row for row in grouped[method, step] if row["role"] == role]
                    places = [[float(row[axis]) for row in points] for axis in ("x", "y")]
                    axes.scatter(*places, s=16 if role == "negative" else 36, color=colour, alpha=0.8, label=role)
                axes.add_patch(Circle((0, 0), T_NEG, fill=False, linestyle="--", edgecolor="black"))
                when = f"step {step:,}" if laptop else f"epoch {float(grouped[method, step][0]['epoch']):.0f}"
                axes.set(title=f"{method}, {when}", xlim=(-RANGE, RANGE), ylim=(-RANGE, RANGE), aspect="equal")
        legend(panels[0][0])
        for axes in panels[-1]:
            axes.set_xlabel("t-SNE, first axis")
        for line in panels:
            line[0].set_ylabel("t-SNE, second axis")
        return made

    def shown_seeds(self, found: Found) -> str:
        return "".join(f"seed {row['seed']}" for row in found[""][:1])

    def verdict(self, found: Found) -> str:
        last: dict[str, list[Row]] = {}
        for (method, _), points in sorted(self.groups(found).items(), key=lambda item: item[0][1]):
            last[method] = points
        if len(last) < len(METHODS):
            return "Not decided here: one of the two was not run."
        words = "; ".join(f"{method} {statistics.stdev(distances(last[method], 'negative')):.3f}" for method in METHODS)
        return f"To be judged by eye, on one query. Deviation of its negatives' squared distances at the end: {words}."


def distances(points: list[Row], role: str) -> list[float]:
    return [float(row["distance"]) for row in points if row["role"] == role]
