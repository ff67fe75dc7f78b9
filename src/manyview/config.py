"""What a run is: groups of settings. The command line turns each field into a flag and the text below it into help."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from manyview.bounds import AtLeastOne, NotNegative, Positive, PositiveShare, Seed, Share, ShareBelowOne
from manyview.encoders import EncoderConfig

__all__ = ["Config", "DataConfig", "OptimConfig", "Precision", "RunConfig", "ViewConfig", "plain"]

Precision = Literal["float32", "bf16", "fp16", "float64"]


@dataclass(frozen=True)
class RunConfig:
    """Where the run is kept and what is measured during training."""

    out: Path
    """Run directory; must be new or empty (an interrupted run goes on with `manyview resume OUT`, one that torchrun
    restarts goes on by itself)."""
    preset: Literal["auto", "small", "paper", "paper-cifar", "paper-alexnet", "paper-stl10", "paper-nyu"] = "auto"
    """Defaults of the rest of a set-up: `paper` is the papers' (ResNet-50, 224 px); `small` is for images of at most
    64 px (encoder `tiny`, queue an eighth of the set, momentum 0.99); `auto` takes one of these by the images' size.
    `paper-cifar` is that of CACR on CIFAR-10, CIFAR-100 and STL-10 (AlexNet, 200 epochs, no queue); `paper-alexnet`,
    `paper-stl10` and `paper-nyu` are those of CMC with AlexNet and with RGB-D images."""
    config: Path | None = None
    """TOML or JSON file of flags (lr = 0.1, queue-size = 4096 …); a run's config.json is one. Flags override it."""
    seed: Annotated[int, Seed] = 0
    """Decides initial weights, order and views; the same seed gives the same run."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps …; `auto` takes a GPU where there is one. Under torchrun each process takes its own."""
    compile: bool = False
    """Compile encoders and views by torch.compile: the first steps take long, the others less."""
    checkpoint_every: Annotated[int, Positive] = 1000
    """Optimizer steps between checkpoints; the state before the first step and after the last is saved too."""
    keep: Annotated[int, Positive] = 3
    """How many of the newest checkpoints stay on disk."""
    snapshots: Annotated[int, NotNegative] = 0
    """Encoders with their heads that are kept for curves, at so many even distances of the run and before it."""
    log_every: Annotated[int, Positive] = 50
    """Steps between printed lines when the output is not a terminal."""
    knn_every: Annotated[int, NotNegative] = 0
    """Measure kNN accuracy every N epochs (labelled data only). 0: never."""
    contrast_every: Annotated[int, NotNegative] = 1
    """Measure contrast (entropy of the negative weights, alignment, uniformity …) every N epochs and in the last step,
    on the same 5 views of 512 images for every method. 0: never."""
    contrast_data: str | None = None
    """Images for the contrast; anything that `data` takes. Default: the test split of the data, or training images
    where it has none."""
    contrast_t_neg: Annotated[float, Positive] = 2.0
    """t⁻ of the negative weights in the contrast. Use the same value for all runs that you compare."""


@dataclass(frozen=True)
class DataConfig:
    """Where the samples come from."""

    data: str
    """`scenes` (embedded), a folder of images, a .tar of images or a folder of them (or, in quotes,
    'a/train-*.tar', 'a/train-{000..099}.tar'), a packed file, or cifar10:DIR, cifar100:DIR, stl10:DIR,
    imagenet:DIR, imagenet100:DIR."""
    unlabelled: bool = False
    """Do not read the first directory level of a folder or tar as labels."""
    subset: Annotated[int | None, Positive] = None
    """Learn from at most so many of the images, drawn by chance; of these `imbalance` leaves fewer still."""
    imbalance: Literal["none", "linear", "exponential"] = "none"
    """Label imbalance after CACR: of class l of C, `linear` keeps the share l/C, `exponential` R^(-(C-l)/(C-1)),
    where R is `imbalance-ratio` (the paper's floor of l/C would make all classes but the last alike)."""
    imbalance_ratio: Annotated[float, AtLeastOne] = 100.0
    """For `exponential`: how many times as large a share the last class keeps as the first."""
    missing: Annotated[float, ShareBelowOne] = 0.0
    """Share of the views beyond colours (depth, normals, segmentation) that is withheld, by chance: a sample without
    one is left out where that view is contrasted."""
    workers: Annotated[int, NotNegative] = 0
    """Processes that read and decode; 0 reads in the main process, right for small packed sets."""


@dataclass(frozen=True)
class ViewConfig:
    """How a sample becomes views."""

    augment: str = "moco-v2"
    """Recipe of the views: moco-v1, moco-v2, simclr, cmc (crops and flips), cifar, cifar100 or stl10; with
    +ra behind its name, as cmc+ra, two operations of RandAugment follow."""
    image_size: Annotated[int, Positive] = 224
    """Side of the views in pixels."""
    min_crop: Annotated[float | None, PositiveShare] = None
    """Smallest share of an image that a crop covers, instead of the recipe's."""


@dataclass(frozen=True)
class OptimConfig:
    """How the weights are fitted."""

    batch_size: Annotated[int, Positive] = 256
    """Samples per optimizer step, over all devices together."""
    encoded_views: Annotated[int | None, Positive] = None
    """Views per optimizer step instead of samples, for comparisons at equal cost: --batch-size becomes this number
    divided by the views of a sample."""
    epochs: Annotated[int, Positive] = 200
    """Passes over the data."""
    max_steps: Annotated[int | None, Positive] = None
    """Optimizer steps instead of epochs; also the horizon of all schedules."""
    optimizer: Literal["sgd", "adamw", "adam", "lars"] = "sgd"
    """Update rule; `lars` and `adamw` spare biases and norms the weight decay, `sgd` decays all, as MoCo does; `adam`
    is CMC's for patches, with β = (0.5, 0.999)."""
    lr: Annotated[float, Positive] = 0.03
    """Peak learning rate, before `lr-rule`."""
    lr_rule: Literal["none", "linear", "sqrt"] = "none"
    """Scale lr by batch/256 (`linear`) or its root (`sqrt`)."""
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    """Course of the learning rate after the warm-up."""
    milestones: Annotated[tuple[float, ...], Share] = (0.6, 0.8)
    """For `step`: where the rate falls, as shares of the run."""
    decay: Annotated[float, Positive] = 0.1
    """For `step`: by what the rate is multiplied there."""
    warmup_epochs: Annotated[float, NotNegative] = 0.0
    """Epochs of linear warm-up from 0."""
    weight_decay: Annotated[float, NotNegative] = 1e-4
    """L2 penalty (decoupled in `adamw`)."""
    sgd_momentum: Annotated[float, Share] = 0.9
    """Momentum of `sgd` and `lars`."""
    clip_grad: Annotated[float | None, Positive] = None
    """Largest norm of the gradient."""
    precision: Precision = "float32"
    """`bf16` and `fp16`: networks compute in half precision, weights and objectives stay in float32 (autocast);
    `float64` is for checks."""
    accumulate: Annotated[int, Positive] = 1
    """Parts in which a batch is worked on one after the other, for batches that do not fit the memory. Their gradients
    add up; methods whose negatives are the batch itself see those of a part."""


MethodConfig = TypeVar("MethodConfig")


@dataclass(frozen=True)
class Config(Generic[MethodConfig]):
    """Everything that decides a run."""

    method: MethodConfig
    run: RunConfig
    data: DataConfig
    views: ViewConfig = field(default_factory=ViewConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)


AnyConfig = Config[Any]


def plain(config: AnyConfig) -> dict[str, Any]:
    """The configuration as JSON holds it."""
    result: dict[str, Any] = json.loads(json.dumps(asdict(config), default=str))
    return result
