"""What the recipes of CMC share: one set-up on a laptop, and the paper's."""

from collections.abc import Mapping

from manyview.evaluate import Knn, Linear, LinearSgd
from manyview.reproduce.budget import budget
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Row
from manyview.reproduce.looks import Accuracy
from manyview.reproduce.setting import Setting
from manyview.reproduce.training import WATCH_AT_END, Look, Training
from manyview.views.named import named_views

__all__ = ["REMARK", "CmcGrid", "cmc_looks", "cmc_run"]

CMC_STEPS, CMC_BATCH, DRAW = 600, 128, 4096
SUBSET = 5_000  # so few that a sample meets the bank again fifteen times
REMARK = (
    "Every run takes 600 steps of 128 of 5,000 images, so few that each meets the bank again, with `tiny` for each "
    "view, τ 0.07, 4,096 negatives, Adam with lr 0.003; classifiers are fitted on all training images. In trials "
    "with {L, ab} of 400 steps, judged by kNN on held-out training images of CIFAR-10, SGD with lr 0.01 to 0.06 stayed "
    "within three points of random weights, Adam with lr 0.001 and 0.003 was ten ahead of them; nothing else was "
    "searched for, and nothing for the other rows."
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
    flags = ["--views", views, *own, *WATCH_AT_END, "--keep", "1", "--seed", str(seed)]
    if setting.scale == "laptop":
        flags += ["--preset", "small", "--checkpoint-every", "100", "--subset", str(SUBSET)]
        flags += ["--optimizer", "adam", "--lr", "0.003", "--batch-size", str(16 if setting.quick else CMC_BATCH)]
        if method == "cmc" and "--draw" not in own:
            flags += ["--draw", str(16 if setting.quick else DRAW)]
        flags += [] if setting.data.startswith("scenes") else ["--min-crop", "0.5"]
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
