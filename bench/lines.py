"""The lines of the race: what is compared with what, and the bar that each is to reach."""

from dataclasses import dataclass, replace

from bench.steps import BATCH, KEYS, SIZE
from manyview.cost.steps import QUEUE


@dataclass(frozen=True)
class Line:
    """One comparison: how many times longer `theirs` takes than `ours`."""

    name: str  # of its file
    what: str
    against: str
    bar: float | None  # what the median is to reach; None where the line only informs
    ours: str = "manyview"  # names of sides
    theirs: str = "peer"
    overhead: bool = False  # the ratio is turned over: how many times as long we take, at most as often as the bar
    amount: float | None = None  # what one run makes, of `unit`, so that times become rates
    unit: str = ""
    memory_bar: float | None = None  # our peak memory as a share of theirs, at most

    def making(self, amount: float) -> "Line":
        return replace(self, amount=amount)


VIEWS_32_LIGHTLY = Line(
    "views-32-lightly",
    "views of 32 px, moco-v2 with blur, one core",
    "lightly's MoCoV2Transform on PIL images",
    12.0,
    theirs="lightly",
    unit="views/s",
)
VIEWS_32_KORNIA = Line(
    "views-32-kornia",
    VIEWS_32_LIGHTLY.what,
    "kornia's AugmentationSequential on the batch",
    3.0,
    theirs="kornia",
    unit="views/s",
)
VIEWS_224_LIGHTLY = Line(
    "views-224-lightly",
    "6 views of 224 px from JPEGs of COCO's size, decoding included, one core",
    "Pillow and lightly's MoCoV2Transform",
    3.5,
    theirs="lightly",
    unit="views/s",
)

_SET_UP = f"`tiny`, {SIZE} px, batch {BATCH}, K={QUEUE:,}, two cores"
TRAIN_MOCO = Line(
    "train-moco",
    f"moco-v2 from images to step, {_SET_UP}",
    "lightly's MoCo, two workers",
    2.5,
    ours="manyview moco-v2",
    theirs="lightly, 2 views",
    unit="images/s",
)
TRAIN_MOCO_CHANNELS_LAST = replace(
    TRAIN_MOCO,
    name="train-moco-channels-last",
    against=f"{TRAIN_MOCO.against}, channels-last",
    theirs=f"{TRAIN_MOCO.theirs}, channels-last",
    bar=1.8,
)
TRAIN_JCL = Line(
    "train-jcl",
    f"jcl, M′={KEYS}, from images to step, {_SET_UP}",
    f"lightly's MoCo with {KEYS} keys, two workers",
    3.2,
    ours="manyview jcl",
    theirs=f"lightly, {1 + KEYS} views",
    unit="images/s",
)
TRAIN_JCL_CHANNELS_LAST = replace(
    TRAIN_JCL,
    name="train-jcl-channels-last",
    against=f"{TRAIN_JCL.against}, channels-last",
    theirs=f"{TRAIN_JCL.theirs}, channels-last",
    bar=2.4,
)
TRAIN_JCL_AGAINST_MOCO = replace(
    TRAIN_JCL,
    name="train-jcl-against-moco",
    what=f"jcl, M′={KEYS}, with its {1 + KEYS} views, from images to step, {_SET_UP}",
    against="lightly's MoCo with 2 views, two workers",
    theirs=TRAIN_MOCO.theirs,
    bar=1.1,
)
TRAINING = (TRAIN_MOCO, TRAIN_MOCO_CHANNELS_LAST, TRAIN_JCL, TRAIN_JCL_CHANNELS_LAST, TRAIN_JCL_AGAINST_MOCO)
# Waiting threads that sleep instead of spinning leave the cores to lightly's workers: what its user could set.
TRAINING_PASSIVE = tuple(
    replace(
        line,
        name=f"{line.name}-passive",
        against=f"{line.against}, its threads passive while they wait",
        theirs=f"{line.theirs}, passive",
        bar=None,
    )
    for line in TRAINING
)
KEPT_MEMORY = replace(
    TRAIN_JCL,
    name="kept-memory",
    against="the same, with freed memory given back to the system as glibc does",
    theirs="manyview jcl, memory given back",
    bar=None,
)
STEP_OVERHEAD = Line(
    "step-overhead",
    f"a jcl step on ready views, M′={KEYS}, {_SET_UP}",
    "its encoder passes and SGD alone",
    1.10,
    ours="manyview jcl, ready views",
    theirs="bare passes",
    overhead=True,
    unit="images/s",
)
STEP_OVERHEAD_VIEWS = replace(
    STEP_OVERHEAD,
    name="step-overhead-with-views",
    what=f"a jcl step that makes its views, M′={KEYS}, {_SET_UP}",
    ours="manyview jcl, views made",
    bar=None,
)

OBJECTIVE_QUEUE = 65_536
JCL_OBJECTIVE = Line(
    "jcl-objective",
    f"jcl, forward and backward, N={BATCH}, D=128, M′={KEYS}, K={OBJECTIVE_QUEUE:,}, two cores",
    "the released formula: D×D covariances, queue cloned, logits joined, cross-entropy",
    1.7,
    theirs="released formula",
    memory_bar=0.5,
)
POSITIVES_DIM = 2048
JCL_POSITIVES = Line(
    "jcl-positives",
    f"jcl's positive part, forward and backward, N={BATCH}, D={POSITIVES_DIM}, M′={KEYS}, two cores",
    "the released formula: D×D covariances",
    50.0,
    theirs="released formula",
    memory_bar=0.01,
)
CACR_POSITIVES, IN_BATCH = 4, 768
CACR_OBJECTIVE = Line(
    "cacr-objective",
    f"cacr, forward and backward, N={BATCH}, D=128, M={CACR_POSITIVES}, K={OBJECTIVE_QUEUE:,}, two cores",
    "Algorithm 3 as printed, with the queue by matrix product",
    1.8,
    theirs="Algorithm 3",
    memory_bar=0.5,
)
JCL_OBJECTIVE_KEPT, CACR_OBJECTIVE_KEPT = (
    replace(line, name=f"{line.name}-kept", against=f"{line.against}; both keep memory", bar=None, memory_bar=None)
    for line in (JCL_OBJECTIVE, CACR_OBJECTIVE)
)
CACR_IN_BATCH = Line(
    "cacr-in-batch",
    f"cacr in the batch, forward and backward, N={IN_BATCH}, D=128, M=1, two cores",
    "differences of all pairs, written out",
    5.0,
    theirs="differences",
)
BANK_ENTRIES, BANK_DRAW = 100_000, 16_384
BANK_DRAWS = Line(
    "bank-draws",
    f"scores of {BANK_DRAW:,} drawn negatives for each anchor, forward and backward, bank of {BANK_ENTRIES:,}, "
    f"N={BATCH}, D=128, two cores",
    "the drawn rows gathered and multiplied",
    None,
    theirs="gathered rows",
    memory_bar=0.05,
)
MOMENTUM_UPDATE = Line(
    "momentum",
    "momentum update of a ResNet-50, two cores",
    "MoCo's loop over the parameters",
    3.0,
    theirs="MoCo's loop",
)

KNN_TRAIN, KNN_TEST, KNN_DIM, KNN_NEIGHBOURS = 50_000, 10_000, 512, 200
KNN = Line(
    "knn",
    f"kNN evaluation, {KNN_TRAIN:,} × {KNN_TEST:,} × {KNN_DIM}, k={KNN_NEIGHBOURS}, two cores",
    "scikit-learn's KNeighborsClassifier, brute force, Euclidean",
    1.2,
    theirs="scikit-learn",
)

GROUPS: dict[str, tuple[Line, ...]] = {
    "views": (VIEWS_32_LIGHTLY, VIEWS_32_KORNIA, VIEWS_224_LIGHTLY),
    "training": (*TRAINING, *TRAINING_PASSIVE, KEPT_MEMORY, STEP_OVERHEAD, STEP_OVERHEAD_VIEWS),
    "objective": (JCL_OBJECTIVE, JCL_POSITIVES, CACR_OBJECTIVE, CACR_IN_BATCH, BANK_DRAWS, MOMENTUM_UPDATE),
    "knn": (KNN,),
    "kept": (JCL_OBJECTIVE_KEPT, CACR_OBJECTIVE_KEPT),
}


def group_of(name: str) -> str:
    return next(group for group, lines in GROUPS.items() if any(line.name == name for line in lines))
