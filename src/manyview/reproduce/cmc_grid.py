"""What the recipes of CMC share: one set-up on a laptop, and the paper's."""

from collections.abc import Mapping

from manyview.evaluate import Knn, Linear, LinearSgd
from manyview.reproduce.budget import budget
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Row
from manyview.reproduce.looks import Accuracy
from manyview.reproduce.setting import Setting
from manyview.reproduce.training import Look, Training
from manyview.views.named import named_views

__all__ = ["REMARK", "CmcGrid", "cmc_looks", "cmc_run"]

CMC_STEPS, CMC_BATCH, DRAW = 600, 256, 4096
SUBSET = 10_000  # so that a sample meets the bank again fifteen times
REMARK = (
    "Every run takes 600 steps of 256 of 10,000 images, which are few so that each meets the bank again, with `tiny` "
    "for each view, τ 0.07, 4,096 negatives, lr 0.06; nothing was searched for."
)


def cmc_looks(setting: Setting, views: tuple[str, ...] = ()) -> tuple[Look, ...]:
    """On all views, or on some."""
    linear = Linear() if setting.scale == "laptop" else LinearSgd(lr=30.0)
    return (Accuracy((Knn(), linear), views=views),)


def cmc_run(
    setting: Setting,
    columns: Row,
    seed: int,
    views: str,
    *own: str,
    method: str = "cmc",
    looks: tuple[Look, ...] | None = None,
) -> Training:
    """One run on these views. At the paper's scale that is ResNet-50 for each of them, 200 epochs (E.2)."""
    length = budget(setting, steps=CMC_STEPS, epochs=200)
    flags = ["--views", views, *own, "--watch-every", "0", "--keep", "1", "--seed", str(seed)]
    if setting.scale == "laptop":
        few = {"--batch-size": 16 if setting.quick else CMC_BATCH}
        if method == "cmc" and "--draw" not in own:
            few["--draw"] = 16 if setting.quick else DRAW
        flags += [
            "--preset",
            "small",
            "--checkpoint-every",
            "100",
            *(str(word) for pair in few.items() for word in pair),
        ]
        if not setting.data.startswith("scenes"):  # of which there are 10,000; and a photograph fills its frame
            flags += ["--subset", str(SUBSET), "--min-crop", "0.2"]
    else:
        flags += ["--preset", "paper"]
    return Training(
        {**columns, "seed": str(seed), "steps": length.steps},
        words=(method, *flags, *length.words),
        looks=cmc_looks(setting) if looks is None else looks,
        seconds=length.seconds(CMC_BATCH, trained=len(named_views(views))),
    )


class CmcGrid(Grid):
    remarks = REMARK

    def label(self, row: Mapping[str, str]) -> str:
        return row[self.variables[0]]
