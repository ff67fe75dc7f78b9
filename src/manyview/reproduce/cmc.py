"""CMC's tables and figures."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from manyview.data import open_source
from manyview.diagnose.mine import estimate_mutual_information
from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.evaluate.linear_adam import LinearAdam
from manyview.evaluate.linear_sgd import LinearSgd
from manyview.evaluate.protocol import Protocol
from manyview.fields import IMAGE
from manyview.reproduce.job import Look, Row
from manyview.reproduce.looks import Accuracy, BesideRandom
from manyview.reproduce.plots import PALETTE, figure, legend
from manyview.reproduce.recipe import NOT_PRINTED, Found, Recipe
from manyview.reproduce.setting import Setting
from manyview.reproduce.setups import Flags, Pretraining, length
from manyview.reproduce.sweep import Sweep
from manyview.reproduce.verdict import Table, claims, spread
from manyview.run.normalisation import some_samples
from manyview.run.saved import saved_config
from manyview.views.colourspaces import SPLITS, split
from manyview.views.named import named_views

STEPS, BATCH = 600, 128
LAPTOP: Flags = {
    "preset": "small", "subset": 5_000, "optimizer": "adam", "lr": 0.003, "batch_size": BATCH, "checkpoint_every": 100,
}  # fmt: skip
REMARK = """Every run takes 600 steps of 128 of 5,000 images, so few that each meets the bank again, with `tiny` for
    each view, τ = 0.07, 4,096 negatives and Adam with lr 0.003; classifiers are fitted on all training images. In
    shorter trials with {L, ab}, judged by kNN on held-out training images of CIFAR-10, SGD with lr 0.01 and 0.03
    stayed within three points of random weights, and Adam with lr 0.001 and 0.003 was ten ahead of them (their rows
    were not kept). Nothing else was searched for."""
DEPTH_REMARK = """The rows are of depth in 8 bits that was resized with antialiasing. Depth has 16 bits since, resized
    by picking pixels: then L, ab and depth (Fig. 4, seed 0) give 64.3 %, and not 64.9 %."""
RGBD_SETUP = "a set with depth and normals, patches, the encoder of Table 12 for each view, 3,000 epochs (E.4)"
VIEWS = ("L", "ab", "depth", "normals")

# How the paper probes, by encoder: ResNets and AlexNet on ImageNet (E.2), everything on small sets (E.1, E.4).
RESNET_PROBE = LinearSgd(lr=30.0, milestones=(0.6, 0.75, 0.9), decay=0.2)
ALEXNET_PROBE = replace(RESNET_PROBE, lr=0.1)
SMALL_PROBE = LinearAdam()


def protocols(setting: Setting, probe: Protocol = RESNET_PROBE) -> tuple[Protocol, ...]:
    return Knn(), setting.pick(Linear(), probe)


def cmc_run(
    setting: Setting, columns: Mapping[str, object], views: str, *, looks: tuple[Look, ...], method: str = "cmc",
    preset: str = "paper", epochs: int = 200, paper: float | None = None, **changes: Any,
) -> Pretraining:  # fmt: skip
    """One run on these views. At the paper's scale with this preset for so many epochs (E.2)."""
    flags: dict[str, Any] = {"views": views, "preset": preset}
    if setting.scale == "laptop":
        flags |= {**LAPTOP, "min_crop": None if setting.on_scenes else 0.5, "draw": 4096 if method == "cmc" else None}
    flags |= changes
    if setting.quick:
        flags |= setting.pick({"batch_size": 16}, {})
        flags |= {"draw": min(16, flags["draw"])} if flags.get("draw") else {}
    return Pretraining(
        columns=columns,
        paper=paper,
        method=method,
        flags=flags,
        lasts=length(setting, steps=STEPS, epochs=epochs),
        looks=looks,
        samples=BATCH,
        trained=len(named_views(views)),
    )


def rgbd_run(
    setting: Setting, columns: Mapping[str, object], views: str, method: str = "cmc", **more: Any
) -> Pretraining:
    """The same with views beyond colours. At the paper's scale, that of NYU Depth-V2, whole views meet patches."""
    method = "cmc-patch" if (setting.scale, method) == ("paper", "cmc") else method
    return cmc_run(setting, columns, views, method=method, preset="paper-nyu", epochs=3000, **more)


def of_l(setting: Setting) -> tuple[Look, ...]:
    return (Accuracy(protocols(setting, SMALL_PROBE), views=("L",)),)


FIG4 = Sweep(
    name="cmc-fig4",
    where="CMC, Fig. 4",
    title="Accuracy of the encoder of L, trained with one to four views",
    claim="As views are added in the order L, ab, depth, normals, the representation of L becomes better with each.",
    expectation="Depth and normals, which show shape alone, help L to tell solids apart; ab helps little.",
    remarks=f"""{REMARK} {DEPTH_REMARK} L is the core view, and only its features are evaluated, by the labels of
        `scenes`; the paper evaluates semantic segmentation on NYU Depth-V2 and prints no values. A single view meets
        itself in the bank.""",
    paper_setup=RGBD_SETUP,
    variables=("count",),
    label=lambda row: f"{row['count']} view{'s' * (row['count'] != '1')}",
    x=("count", "views, in the order L, ab, depth, normals"),
    runs=lambda setting: [
        rgbd_run(setting, {"count": n}, ",".join(VIEWS[:n]), graph="core", looks=of_l(setting))
        for n in range(1, len(VIEWS) + 1)
    ],
    comparisons=claims("2 views > 1 view", "3 views > 2 views", "4 views > 3 views", "4 views > 1 view"),
)

SPACES = {"lab": "{L, ab}", "ydbdr": "{Y, DbDr}", "hsv": "{H, SV}", "rgb": "{R, GB}"}
IMAGES, SIDE = 10_000, 8


@dataclass(frozen=True)
class SharedInformation:
    """By MINE, of the two views of images reduced to 8×8 pixels: a critic memorises larger ones."""

    space: str

    @property
    def name(self) -> str:
        return f"mine-{self.space}"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        seed = saved_config(run)[1].run.seed
        drawn = some_samples(open_source(setting.train), seed, 64 if setting.quick else IMAGES)
        images = torch.cat([F.adaptive_avg_pool2d(fields[IMAGE] / 255, (SIDE, SIDE)) for fields, _ in drawn])
        one, other = split(images, self.space).values()
        steps = 20 if setting.quick else 2000
        return [{"information": f"{estimate_mutual_information(one, other, seed=seed, steps=steps):.4f}"}]


@dataclass(frozen=True, kw_only=True)
class Information(Sweep):
    """Accuracy against what the views share."""

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
        axes.set(xlabel="mutual information of the views, by MINE, nats", ylabel="linear accuracy, %")
        legend(axes)
        return made


FIG5 = Information(
    name="cmc-fig5",
    where="CMC, Fig. 5 (left)",
    title="Accuracy against the mutual information of the two views of a colour space",
    claim="""The less the two views of a colour space share, the better the representation; the exception is {H, SV},
        whose H is periodic.""",
    expectation="RGB shares most by far, and gives the worst representation.",
    remarks=f"""{REMARK} Mutual information by MINE, of images reduced to 8×8 pixels. {NOT_PRINTED} At first
        {{H, SV}} was compared with {{R, GB}}; when its row was known, the paper's exception for {{H, SV}} was
        noticed, and {{L, ab}} is compared with it instead.""",
    paper_setup="STL-10, half an AlexNet for each view, 320 epochs (E.1), all twelve splits",
    variables=("space",),
    measured=("information", "knn", "linear"),
    label=lambda row: SPACES.get(row["space"], row["space"]),
    runs=lambda setting: [
        cmc_run(
            setting, {"space": space}, space, preset="paper-stl10", epochs=320,
            looks=(SharedInformation(space), Accuracy(protocols(setting, SMALL_PROBE))),
        )
        for space in setting.pick(tuple(SPACES), tuple(SPLITS))
    ],
    comparisons=claims("{L, ab} > {R, GB}", "{Y, DbDr} > {R, GB}", "{L, ab} > {H, SV}"),
)  # fmt: skip


FIG6 = Sweep(
    name="cmc-fig6",
    where="CMC, Fig. 6",
    title="Accuracy against m, the negatives drawn for each anchor",
    claim="More negatives are better, from 64 to 8,192, with less and less to gain.",
    expectation="64 behind the others.",
    remarks=f"{REMARK} Here m varies; {{L, ab}} by NCE, as in the paper. {NOT_PRINTED}",
    paper_setup="ImageNet-100, half an AlexNet for each view, 200 epochs (E.2)",
    variables=("draw",),
    label="m = {draw}".format_map,
    x=("draw", "negatives, m"),
    evenly=True,
    runs=lambda setting: [
        cmc_run(
            setting, {"draw": m}, "lab", draw=m, contrast="nce", preset="paper-alexnet",
            looks=(Accuracy(protocols(setting, ALEXNET_PROBE)),),
        )
        for m in setting.pick((64, 512, 4096), tuple(2**power for power in range(6, 14)))
    ],
    comparisons=claims("m = 512 > m = 64", "m = 4096 > m = 512"),
)  # fmt: skip


def beside(column: str, **more: Any) -> Sweep:
    """Each row has random weights beside it, whose rows a column tells apart that no job has: a job is of the trained
    ones."""
    return Sweep(
        variables=(column, "encoder"),
        label=lambda row: f"{row.get(column, '')}{', random' * (row.get('encoder') == 'random')}",
        series=lambda row: row.get("encoder", "trained"),
        short=lambda row: row[column],
        **more,
    )


SPLIT_VIEWS: Mapping[str, tuple[float | None, str, Flags]] = {  # the paper's number, the views, and other flags
    "{L, ab}": (64.0, "lab", {}),
    "{Y, DbDr}": (64.8, "ydbdr", {}),
    "{Y, DbDr} + RA": (66.2, "ydbdr", {"augment": "cmc+ra"}),
    "RGB": (None, "RGB", {}),
}
TABLE1 = beside(
    "views",
    name="cmc-table1",
    where="CMC, Table 1",
    title="Colour spaces as two views, against the whole image as one",
    claim="""{Y, DbDr} is a little ahead of {L, ab}, RandAugment adds more than a point, and both are far ahead of
        instance discrimination on RGB (54.0 with ResNet-50, by Wu et al.).""",
    expectation="Splits ahead of RGB; the two colour spaces within a point of each other.",
    remarks=f"""{REMARK} RGB is instance discrimination with the same bank: one network and half the features of two
        views. Hence each row has random weights beside it, and the gains over those are compared too (decided after
        seed 0).""",
    paper_setup="ImageNet, ResNet-50 for each view, 200 epochs",
    runs=lambda setting: [
        cmc_run(setting, {"views": name}, views, looks=(BesideRandom(protocols(setting)),), paper=number, **own)
        for name, (number, views, own) in SPLIT_VIEWS.items()
    ],
    derived={f"gain of {name}": (name, f"{name}, random") for name in SPLIT_VIEWS},  # a second network has its own
    comparisons=claims(
        "{L, ab} > RGB",
        "{Y, DbDr} > RGB",
        "{Y, DbDr} > {L, ab}",
        "{Y, DbDr} + RA > {Y, DbDr}",
        "{L, ab} > {L, ab}, random",
        "RGB > RGB, random",
        "gain of {L, ab} > gain of RGB",
        "gain of {Y, DbDr} > gain of RGB",
    ),
)
TABLE4 = beside(
    "view",
    name="cmc-table4",
    where="CMC, Table 4",
    title="Each view alone, after training with all pairs of L, ab, depth and normals",
    claim="Training with the full graph improves the representations of all four views over random ones.",
    expectation="Large gains for L, depth and normals; ab hardly shows the shape of a solid.",
    remarks=f"""{REMARK} {DEPTH_REMARK} The full graph of four views in one run, each evaluated by the labels of
        `scenes`; the paper evaluates semantic segmentation on NYU Depth-V2 (pixel accuracy: random 45.5, 37.7, 51.1,
        50.5; CMC 57.0, 49.6, 59.4, 57.8 for L, ab, depth, normals).""",
    paper_setup=RGBD_SETUP,
    runs=lambda setting: [
        rgbd_run(
            setting, {}, ",".join(VIEWS), graph="full",
            looks=(BesideRandom(protocols(setting, SMALL_PROBE), tuple((view,) for view in VIEWS)),),
        )
    ],
    comparisons=claims(*(f"{view} > {view}, random" for view in VIEWS)),
)  # fmt: skip

WORDS = {"cmc": "contrastive", "predictive": "predictive"}
TABLE5_NUMBERS = {"depth": (58.3, 55.5), "normals": (60.1, 58.4)}
TABLE5 = Sweep(
    name="cmc-table5",
    where="CMC, Table 5",
    title="Contrastive against predictive learning, evaluated by the encoder of L",
    claim="To contrast L with depth or normals gives a better encoder of L than to predict one from the other.",
    expectation="Contrastive ahead for both pairs.",
    remarks=f"""{REMARK} {DEPTH_REMARK} Predictions are judged by squared differences; with their decoders they take
        three times as long for the same images. The paper trains on NYU Depth-V2 and evaluates on STL-10; here both are
        `scenes`, whose labels are kinds of solids. Depth and normals almost show these, which may be why prediction
        does well (a guess made afterwards, not tested).""",
    paper_setup=RGBD_SETUP,
    variables=("pair", "method"),
    label=lambda row: f"{WORDS[row['method']]}, {row['pair']}",
    runs=lambda setting: [
        rgbd_run(setting, {"pair": pair, "method": method}, f"L,{pair}", method, looks=of_l(setting), paper=number)
        for pair, numbers in TABLE5_NUMBERS.items()
        for method, number in zip(WORDS, numbers, strict=True)
    ],
    comparisons=claims("contrastive, depth > predictive, depth", "contrastive, normals > predictive, normals"),
)

RECIPES: tuple[Recipe, ...] = (FIG4, FIG5, FIG6, TABLE1, TABLE4, TABLE5)
