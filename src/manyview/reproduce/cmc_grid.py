"""What the recipes of CMC share: one set-up on a laptop, and the paper's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.evaluate.linear_adam import LinearAdam
from manyview.evaluate.linear_sgd import LinearSgd
from manyview.evaluate.protocol import Protocol
from manyview.evaluate.run import evaluate
from manyview.reproduce.budget import budget
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Row
from manyview.reproduce.looks import Accuracy
from manyview.reproduce.plots import bars, figure
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.training import WATCH_AT_END, Look, Training
from manyview.run.build import pick_device
from manyview.run.saved import saved_config
from manyview.views.named import named_views

__all__ = [
    "ALEXNET_PROBE",
    "REMARK",
    "RGBD_SETUP",
    "SMALL_PROBE",
    "BesideRandom",
    "BesideRandomGrid",
    "CmcGrid",
    "cmc_looks",
    "cmc_run",
    "rgbd_run",
]

TRAINED, RANDOM = "trained", "random"  # encoders, as evaluations call them

CMC_STEPS, CMC_BATCH, DRAW = 600, 128, 4096
SUBSET = 5_000  # so few that a sample meets the bank again fifteen times
REMARK = (
    "Every run takes 600 steps of 128 of 5,000 images, so few that each meets the bank again, with `tiny` for each "
    "view, τ 0.07, 4,096 negatives, Adam with lr 0.003; classifiers are fitted on all training images. In shorter "
    "trials with {L, ab}, judged by kNN on held-out training images of CIFAR-10, SGD with lr 0.01 and 0.03 stayed "
    "within three points of random weights, Adam with lr 0.001 and 0.003 was ten ahead of them (their rows "
    "were not kept); nothing else was searched for, and nothing for the other rows."
)


# How the paper probes, by encoder: ResNets and AlexNet on ImageNet (E.2), everything on small sets (E.1, E.4).
RESNET_PROBE = LinearSgd(lr=30.0, milestones=(0.6, 0.75, 0.9), decay=0.2)
ALEXNET_PROBE = replace(RESNET_PROBE, lr=0.1)
SMALL_PROBE = LinearAdam()


def cmc_looks(setting: Setting, views: tuple[str, ...] = (), probe: Protocol = RESNET_PROBE) -> tuple[Look, ...]:
    """On all views, or on some; at the paper's scale by this probe."""
    return (Accuracy((Knn(), Linear() if setting.scale == "laptop" else probe), views=views),)


def cmc_run(
    setting: Setting,
    columns: Row,
    seed: int,
    views: str,
    *own: str,
    method: str = "cmc",
    looks: tuple[Look, ...] | None = None,
    preset: str = "paper",
    epochs: int = 200,
) -> Training:
    """One run on these views. At the paper's scale with this preset, ResNet-50 for each of them unless named, for so
    many epochs (E.2)."""
    length = budget(setting, steps=CMC_STEPS, epochs=epochs)
    flags = ["--views", views, *own, *WATCH_AT_END, "--keep", "1", "--seed", str(seed)]
    if setting.scale == "laptop":
        flags += ["--preset", "small", "--checkpoint-every", "100", "--subset", str(SUBSET)]
        flags += ["--optimizer", "adam", "--lr", "0.003", "--batch-size", str(16 if setting.quick else CMC_BATCH)]
        if method == "cmc" and "--draw" not in own:
            flags += ["--draw", str(16 if setting.quick else DRAW)]
        flags += [] if setting.on_scenes else ["--min-crop", "0.5"]
    else:
        flags += ["--preset", preset]
    return Training(
        {**columns, "seed": str(seed), "steps": length.steps},
        words=(method, *flags, *length.words),
        looks=cmc_looks(setting) if looks is None else looks,
        seconds=length.seconds(CMC_BATCH, trained=len(named_views(views))),
    )


RGBD_SETUP = "a set with depth and normals, patches, the encoder of Table 12 for each view, 3,000 epochs (E.4)"


def rgbd_run(
    setting: Setting, columns: Row, seed: int, views: str, *own: str, looks: tuple[Look, ...], method: str = "cmc"
) -> Training:
    """The same with views beyond colours. At the paper's scale, that of NYU Depth-V2, whole views meet patches."""
    patches = setting.scale == "paper" and method == "cmc"
    return cmc_run(
        setting, columns, seed, views, *own, looks=looks, method="cmc-patch" if patches else method,
        preset="paper-nyu", epochs=3000,
    )  # fmt: skip


@dataclass(frozen=True)
class BesideRandom:
    """kNN and linear accuracy of the trained encoder and of one with random weights; with `groups` of some views each,
    or of all of them (an empty group), whose names are then in a column of their own."""

    groups: tuple[tuple[str, ...], ...] = ((),)
    probe: Protocol = RESNET_PROBE
    """At the paper's scale."""

    @property
    def name(self) -> str:
        return "-".join(("beside-random", *(",".join(views) for views in self.groups if views)))

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        found: dict[tuple[tuple[str, ...], str], Row] = {}
        seed = saved_config(run)[1].run.seed  # random weights are others for each run
        protocols = Knn(), Linear() if setting.scale == "laptop" else self.probe
        for views in self.groups:
            records = evaluate(
                run, protocols, setting.train, setting.test, views=views, seed=seed, workers=setting.workers,
                device=pick_device(setting.device),
            )  # fmt: skip
            for record in records:
                named = {"view": ",".join(views)} if views else {}
                row = found.setdefault((views, record.encoder), {**named, "encoder": record.encoder})
                row[record.protocol.partition("-")[0]] = f"{100 * record.result.value:.2f}"
        return list(found.values())


class CmcGrid(Grid):
    remarks = REMARK

    def label(self, row: Mapping[str, str]) -> str:
        return row[self.variables[0]]


class BesideRandomGrid(CmcGrid):
    """Of rows by `BesideRandom`: `variables` are what was judged, and whether it was trained."""

    def label(self, row: Mapping[str, str]) -> str:
        name = super().label(row)
        return f"{name}, random" if row.get("encoder") == RANDOM else name  # jobs are those of trained ones

    def draw(self, found: Found) -> Figure:
        made, [axes] = figure()
        groups: dict[str, dict[str, list[float]]] = {TRAINED: {}, RANDOM: {}}
        for row in found[""]:
            groups[row["encoder"]].setdefault(super().label(row), []).append(float(row["linear"]))
        bars(axes, groups, y="linear accuracy, %", paper={TRAINED: dict(self.paper)} if self.paper else None)
        return made
