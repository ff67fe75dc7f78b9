"""The set-ups in which the two papers compare: as published, and the ones for a laptop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.evaluate.linear_adam import LinearAdam
from manyview.evaluate.linear_sgd import LinearSgd
from manyview.reproduce.budget import budget
from manyview.reproduce.job import Row
from manyview.reproduce.looks import Accuracy
from manyview.reproduce.setting import Setting
from manyview.reproduce.training import WATCH_AT_END, Look, Training

__all__ = [
    "CACR_FAMILY",
    "CMC_REMARK",
    "ENCODED",
    "JCL_REMARK",
    "Member",
    "cacr_family",
    "cacr_looks",
    "cacr_run",
    "jcl_looks",
    "jcl_run",
]

JCL_STEPS, JCL_BATCH = 500, 256
JCL_REMARK = (
    "Every run takes 500 steps of 256 images, if no other length is named, with `tiny`, a queue of 4,096, a key "
    "encoder of momentum 0.99, a λ that grows linearly from 0 to its value, and Adam (β = 0.5, 0.999) with lr 0.001, "
    "which was chosen for MoCo v2 on held-out training images (`jcl-search`): SGD hardly leaves random weights behind "
    "in so few steps."
)
CMC_REMARK = (
    "CMC (K = 4) has the mean over pairs of views, where Eq. 8 of its paper has their sum, and τ = 0.07, which CACR's "
    "paper gives for ImageNet only."
)
CACR_STEPS, ENCODED = 600, 320  # views encoded in a step
POINTS, PAPER_POINTS = 6, 20  # snapshots for curves; the paper's are every tenth of 200 epochs


def jcl_looks(setting: Setting) -> tuple[Look, ...]:
    linear = Linear() if setting.scale == "laptop" else LinearSgd(lr=10.0)
    return (Accuracy((Knn(), linear)),)


def jcl_run(
    setting: Setting,
    columns: Row,
    seed: int,
    *,
    method: str = "jcl",
    keys: int = 5,
    lam: float = 4.0,
    temperature: float = 0.2,
    share: float = 1.0,
    backbone: str = "resnet18",
    epochs: int = 100,
    changes: Mapping[str, str] | None = None,
    looks: tuple[Look, ...] | None = None,
    table: str = "",
    waits_for: str = "",
) -> Training:
    """One run of JCL's ablations (App. D): `share` of the laptop's steps, or `epochs` with `backbone` as published.
    `changes` are values of flags instead of these."""
    length = budget(setting, steps=round(share * JCL_STEPS), epochs=epochs, share=share)
    batch = 16 if setting.quick else JCL_BATCH
    own = ["--temperature", f"{temperature:g}"]
    own += ["--keys", str(keys)] if method != "moco-v2" else []
    own += ["--lam", f"{lam:g}"] if method == "jcl" else []
    if setting.scale == "laptop":
        words = ["--preset", "small", "--min-crop", "0.2", "--batch-size", str(batch), "--momentum", "0.99"]
        words += ["--optimizer", "adam", "--lr", "0.001", "--checkpoint-every", "100"]
    else:
        words = ["--preset", "paper", "--backbone", backbone, "--batch-size", "128", "--lr", "0.1"]
        words += ["--bn-splits", "8"]  # Shuffle-BN over eight GPUs, on one (App. C)
    flags = changed([*own, *words], [word for pair in (changes or {}).items() for word in pair])
    return Training(
        {**columns, "seed": str(seed), "steps": length.steps},
        table=table,
        waits_for=waits_for,
        words=(method, *flags, *WATCH_AT_END, "--keep", "1", "--seed", str(seed), *length.words),
        looks=jcl_looks(setting) if looks is None else looks,
        seconds=length.seconds(JCL_BATCH, trained=1, keys=1 if method == "moco-v2" else keys),
    )


@dataclass(frozen=True)
class Member:
    """One of the objectives that CACR compares."""

    method: str
    views: int = 2
    own: tuple[str, ...] = ()
    """Hyper-parameters of C.1 for CIFAR-10; at the paper's scale `--preset paper-cifar` knows those of each set."""


CACR_FAMILY = {
    "CL": Member("cl", own=("--temperature", "0.19")),
    "AU-CL": Member("au-cl", own=("--t", "2.0")),
    "HN-CL": Member("hn-cl", own=("--temperature", "0.5", "--beta", "1.0")),
    "CACR (K = 1)": Member("cacr", own=("--t-neg", "2.0")),
    "CMC (K = 4)": Member("cmc-aug", 5),
    "CACR (K = 4)": Member("cacr", 5, ("--t-neg", "0.9")),
}
LAPTOP_FAMILY = ("CL", "CACR (K = 1)", "CMC (K = 4)", "CACR (K = 4)")  # where all six would take too long


def cacr_family(setting: Setting) -> tuple[str, ...]:
    return LAPTOP_FAMILY if setting.scale == "laptop" else tuple(CACR_FAMILY)


def cacr_looks(setting: Setting) -> tuple[Look, ...]:
    if setting.scale == "laptop":
        return (Accuracy((Knn(), Linear())),)
    return Accuracy((Knn(),)), Accuracy((LinearAdam(),))


def cacr_run(
    setting: Setting,
    columns: Row,
    seed: int,
    member: Member,
    *changes: str,
    imbalance: str = "none",
    batch: int | None = None,
    looks: tuple[Look, ...] | None = None,
    augment: str = "cifar",
    points: int = PAPER_POINTS,
) -> Training:
    """One run in the set-up of C.1, or at equal cost on a laptop: as many views in each step, whatever the method.

    `changes` are flags and values instead of the member's own. With a `batch` the laptop's runs encode half as many
    views in all, and their learning rate follows the batch. Snapshots on the way are kept for curves: `points` of them
    at the paper's scale.
    """
    steps = CACR_STEPS if batch is None else CACR_STEPS * ENCODED // (2 * member.views * batch)
    length = budget(setting, steps=steps, epochs=200)
    laptop = setting.scale == "laptop"
    flags = changed(member.own, changes)
    if not laptop:  # the preset knows the member's own values, and left unsaid they make equal runs of equal words
        flags = [word for pair in pairs(changes) if pair not in pairs(member.own) for word in pair]
    flags += ["--imbalance", imbalance, *WATCH_AT_END, "--seed", str(seed), "--keep", "1"]
    flags += ["--snapshots", str(POINTS if laptop else points)]
    if laptop:
        encoded = 40 if setting.quick else ENCODED if batch is None else batch * member.views
        flags += ["--preset", "small", "--augment", augment, "--min-crop", "0.2", "--encoded-views", str(encoded)]
        flags += ["--lr", "0.06"] if batch is None else ["--lr", "0.12", "--lr-rule", "linear"]
        flags += ["--checkpoint-every", "100"]
    else:
        flags += [] if batch is None else ["--batch-size", str(batch)]
        flags += ["--preset", "paper-cifar"]
    return Training(
        {**columns, "seed": str(seed), "steps": length.steps},
        words=(member.method, "--views", str(member.views), *flags, *length.words),
        looks=cacr_looks(setting) if looks is None else looks,
        seconds=length.seconds(batch or ENCODED // member.views, trained=member.views),
    )


def changed(flags: Sequence[str], changes: Sequence[str]) -> list[str]:
    """The flags with other values; written as few times as possible, so that equal runs have equal words."""
    return [word for pair in (dict(pairs(flags)) | dict(pairs(changes))).items() for word in pair]


def pairs(flags: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(flags[::2], flags[1::2], strict=True))
