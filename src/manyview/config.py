"""The settings of a run, in groups. The command line makes a flag of each field and its help of the text below it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from manyview.bounds import AtLeastOne, Channels, NotNegative, Positive, PositiveShare, Seed, Share, ShareBelowOne
from manyview.encoders import EncoderConfig
from manyview.run.files import LoggerName

Precision = Literal["float32", "bf16", "fp16", "float64"]


@dataclass(frozen=True)
class RunConfig:
    """Where the run is kept and what is measured during training."""

    out: Path
    """Run directory. It must be new or empty. `manyview resume OUT` continues an interrupted run. A run that torchrun
    restarts continues by itself."""
    preset: Literal["auto", "small", "paper", "paper-cifar", "paper-alexnet", "paper-stl10", "paper-nyu"] = "auto"
    """Defaults of all other flags. `auto`: by the number and size of the images, and by the machine; each choice is
    printed with its reason. `small`: for images of at most 64 px (backbone `tiny`, queue of 1/8 of the samples,
    momentum 0.99). `paper`: those of the method's paper (ResNet-50, 224 px, 200 epochs). `paper-cifar`: CACR on
    CIFAR-10, CIFAR-100 and STL-10 (AlexNet, 200 epochs, no queue). `paper-alexnet`, `paper-stl10`, `paper-nyu`: CMC
    with AlexNet and with RGB-D images."""
    config: Path | None = None
    """TOML or JSON file of flags (lr = 0.1, queue-size = 4096 …), such as the config.json of a run. Flags on the
    command line override it."""
    time: str | None = None
    """Train for as long as this, such as 30m, 2h or 1h30m, evaluation and page included. The run measures its speed
    first and fixes the number of steps. Instead of --epochs and --max-steps."""
    dry_run: bool = False
    """Print what would be run, with the reasons, the time and the disk that it needs, and stop there."""
    seed: Annotated[int, Seed] = 0
    """Random seed of initial weights, data order and views. The same seed gives the same run."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps … `auto`: a GPU if there is one. Under torchrun each process takes its own GPU."""
    threads: Annotated[int | None, Positive] = None
    """Threads that compute in each process. Default: one per core."""
    compile: bool = False
    """Compile encoders and augmentations with torch.compile. The first steps are slow, later ones faster."""
    checkpoint_every: Annotated[int, Positive] = 1000
    """Save a checkpoint every N optimizer steps, before the first step and after the last."""
    keep: Annotated[int, Positive] = 3
    """Number of checkpoints on disk. Older ones are removed."""
    snapshots: Annotated[int, NotNegative] = 0
    """Number of snapshots of the encoder and its head, evenly spaced over the run, plus one before the first step. 0:
    none."""
    log_every: Annotated[int, Positive] = 50
    """Print a line every N steps if the output is not a terminal."""
    log_to: tuple[LoggerName, ...] = ("tensorboard",)
    """Log the metrics to these too, besides metrics.jsonl; wandb and mlflow also get settings and page. Their own
    variables set them up, such as WANDB_PROJECT, WANDB_MODE=offline, MLFLOW_TRACKING_URI. If they fail, training goes
    on."""
    knn_every: Annotated[int, NotNegative] = 0
    """Measure kNN accuracy every N epochs (labelled data only). 0: never."""
    contrast_every: Annotated[int, NotNegative] = 1
    """Measure contrast (entropy of the negative weights, alignment, uniformity …) every N epochs and in the last step,
    on the same 5 views of 512 images for every method. 0: never."""
    contrast_data: str | None = None
    """Images for the contrast: anything that --data takes. Default: the test split of --data, or training images if
    there is none."""
    contrast_t_neg: Annotated[float, Positive] = 2.0
    """t⁻ of the negative weights in the contrast. Use the same value for all runs that you compare."""


@dataclass(frozen=True)
class DataConfig:
    """The training data."""

    data: str
    """`scenes` (built in), a folder of images, a .tar or .parquet of images, a folder or pattern of .tar or .parquet
    files (in quotes: 'a/train-*.tar', 'a/train-{000..099}.tar'), tars on a server ('s3://bucket/{000..099}.tar',
    'https://host/a.tar'; MANYVIEW_CACHE_SIZE limits what is kept of them, 50GB by default), hf:OWNER/NAME[@REVISION] (a
    set on the Hugging Face hub), a packed file, or cifar10:DIR, cifar100:DIR, stl10:DIR, imagenet:DIR,
    imagenet100:DIR."""
    unlabelled: bool = False
    """Do not take the first directory level of a folder or tar, or the labels in a parquet file, as labels."""
    subset: Annotated[int | None, Positive] = None
    """Train on at most N images, drawn at random. --imbalance is applied to these."""
    imbalance: Literal["none", "linear", "exponential"] = "none"
    """Label imbalance as in CACR. Of class l of C, `linear` keeps the fraction l/C, `exponential` R^(-(C-l)/(C-1)),
    R is --imbalance-ratio. (The paper writes the floor of l/C, which would make all classes but the last equal.)"""
    imbalance_ratio: Annotated[float, AtLeastOne] = 100.0
    """R of --imbalance exponential: the last class keeps R times the fraction that the first one keeps."""
    missing: Annotated[float, ShareBelowOne] = 0.0
    """Fraction of the depth maps, normals and segmentations that is withheld at random. A sample without such a view
    takes no part in the losses of that view."""
    depth_scale: Annotated[float, Positive] = 0.001
    """Metres per unit of depth files: 0.001 for millimetres."""
    intrinsics: str | None = None
    """Camera intrinsics fx,fy,cx,cy in pixels, for normals computed from depth. Default: Kinect's, scaled to the
    images."""
    channels: Annotated[int, Channels] = 3
    """Channels of the images: 1 for grey, 4 and more for satellite and microscopy images. Grey images are repeated for
    3, colours give their luma for 1. Pages of a TIFF with one channel each are channels if there are so many."""
    value_range: tuple[float, float] | None = None
    """LOW HIGH: the values of image files that are black and white, such as 0 4095 for 12 bits. Default: 0 and 255 for
    8 bits, 0 and 65535 for more, 0 and 1 for floating-point numbers."""
    workers: Annotated[int | Literal["auto"], NotNegative] = "auto"
    """Processes that read and decode. 0: read in the main process. `auto`: 0 for packed sets, else one per
    processor."""


@dataclass(frozen=True)
class ViewConfig:
    """Augmentation."""

    augment: str = "moco-v2"
    """Name of the augmentation: moco-v1, moco-v2, simclr, cmc (crops and flips), cifar, cifar100 or stl10. With +ra at
    the end, as in cmc+ra, two operations of RandAugment follow."""
    image_size: Annotated[int, Positive] = 224
    """Side length of the views in pixels."""
    min_crop: Annotated[float | None, PositiveShare] = None
    """Smallest crop, as a fraction of the image area. Default: the augmentation's own value."""
    channel_mean: tuple[float, ...] | None = None
    """Mean of each channel, for normalisation. Default: that of --init, or the augmentation's own."""
    channel_std: Annotated[tuple[float, ...] | None, Positive] = None
    """Standard deviation of each channel, likewise."""


@dataclass(frozen=True)
class OptimConfig:
    """Optimisation."""

    batch_size: Annotated[int, Positive] = 256
    """Samples per optimizer step, summed over all devices."""
    encoded_views: Annotated[int | None, Positive] = None
    """Views per optimizer step, for comparisons at equal cost. The batch size is this number divided by the views per
    sample. Overrides --batch-size."""
    epochs: Annotated[int, Positive] = 200
    """Number of passes over the data."""
    max_steps: Annotated[int | None, Positive] = None
    """Number of optimizer steps. Overrides --epochs, also in the schedules."""
    optimizer: Literal["sgd", "adamw", "adam", "lars"] = "sgd"
    """Optimizer. `sgd` applies weight decay to all weights, as in MoCo; `lars` and `adamw` exclude biases and
    normalisation layers. `adam` has β = (0.5, 0.999), as in CMC of patches."""
    lr: Annotated[float, Positive] = 0.03
    """Peak learning rate, before scaling by --lr-rule."""
    lr_rule: Literal["none", "linear", "sqrt"] = "none"
    """Multiply the learning rate by batch size/256 (`linear`) or its square root (`sqrt`)."""
    backbone_lr: Annotated[float | None, Positive] = None
    """Peak learning rate of the backbone, where it differs from that of the head (--lr)."""
    layer_decay: Annotated[float, PositiveShare] = 1.0
    """Multiply the backbone's learning rate by this factor once more for every layer towards the image."""
    warmup_head_epochs: Annotated[float, NotNegative] = 0.0
    """Train the head alone for so many epochs first, before the backbone changes."""
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    """Learning rate schedule after the warm-up."""
    milestones: Annotated[tuple[float, ...], Share] = (0.6, 0.8)
    """When --schedule step reduces the learning rate, as fractions of the run."""
    decay: Annotated[float, Positive] = 0.1
    """Factor of the learning rate at each milestone."""
    warmup_epochs: Annotated[float, NotNegative] = 0.0
    """Epochs of linear warm-up from 0."""
    weight_decay: Annotated[float, NotNegative] = 1e-4
    """L2 penalty (decoupled in `adamw`)."""
    sgd_momentum: Annotated[float, Share] = 0.9
    """Momentum of `sgd` and `lars`."""
    clip_grad: Annotated[float | None, Positive] = None
    """Clip the gradient to this norm. Default: no clipping."""
    precision: Precision = "float32"
    """`bf16`, `fp16`: mixed precision by autocast; weights and losses stay in float32. `float64`: for tests."""
    accumulate: Annotated[int, Positive] = 1
    """Gradient accumulation: split each batch into N parts to save memory. Negatives from the batch are those of the
    same part."""


MethodConfig = TypeVar("MethodConfig")


@dataclass(frozen=True)
class Config(Generic[MethodConfig]):
    """All settings of a run."""

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
