"""What the loop asks of a method, and the frame of methods with a momentum encoder and a queue."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from manyview import distributed
from manyview.bounds import Positive, Share
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import Encoder, EncoderConfig, Momentum
from manyview.errors import UserError
from manyview.fields import IMAGE
from manyview.negatives import Queue

SmallSet = Literal["cifar10", "cifar100", "stl10"]  # of CACR's C.1
CMCSetup = Literal["paper-alexnet", "paper-stl10", "paper-nyu"]  # of CMC's appendix E


@dataclass(frozen=True)
class ViewBatch:
    """One batch as views, and where in the run it stands."""

    views: Mapping[str, Tensor]  # (V, N, c, h, w) each
    index: Tensor  # (N,) sample numbers
    step: int
    steps: int  # of the whole run
    part: int = 0  # which of the parts whose gradients the step adds up

    @property
    def images(self) -> Tensor:
        """(V, N, 3, h, w)."""
        return self.views[IMAGE]

    def crop(self, number: int) -> dict[str, Tensor]:
        """All fields (N, c, h, w) of one of the V crops."""
        return {name: view[number] for name, view in self.views.items()}

    @property
    def progress(self) -> float:
        """Share of the run that is done after this step: 1 in the last one."""
        return (self.step + 1) / self.steps


@dataclass(frozen=True)
class Paper:
    """The set-up in which a method was published, beyond its own hyper-parameters."""

    views: ViewConfig = field(default_factory=ViewConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)


MOCO_V2 = Paper(
    ViewConfig(augment="moco-v2"),
    EncoderConfig(head="mlp"),
    OptimConfig(batch_size=256, lr=0.03, epochs=200, schedule="cosine"),
)


@dataclass(frozen=True)
class Setup:
    """What a preset changes: hyper-parameters of the method, and those of the optimizer."""

    method: dict[str, Any]
    optim: OptimConfig
    bn_splits: int = 1


@dataclass(frozen=True)
class Chance:
    """The loss of an untrained encoder, for which all images look alike."""

    candidates: float  # the positive among them
    terms: int = 1  # of such losses, added up

    @property
    def loss(self) -> float:
        return self.terms * math.log(self.candidates)


class Method(nn.Module, ABC):
    """A method: `step` turns a batch into {"loss": …, diagnostics…}; `after_step` follows the optimizer.

    A class with a `name` is a method, and final. A class without one is a frame that methods share.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    """As papers write the name."""
    Config: ClassVar[type[Any]]
    paper: ClassVar[Paper]

    on_small_images: ClassVar[Mapping[str, Any]] = {}
    """Hyper-parameters that do better on small images than the paper's (docs/SCENES.md)."""

    contrastive: ClassVar[bool] = True
    """Whether embeddings are compared, so that contrast can be measured."""

    encoder: Encoder  # what is trained, evaluated and exported
    groups: Tensor | None

    def __init__(self, config: Any, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__()
        self.config, self.encoder, self.seed = config, encoder, seed
        self.register_buffer("groups", None, persistent=False)
        self._through: tuple[nn.Module, ...] = ()  # a tuple, so that the encoder is registered once

    @classmethod
    def view_count(cls, config: Any) -> int:
        """V, the views that a step needs of each sample."""
        return 2

    @classmethod
    def encoder_config(cls, config: Any, encoder: EncoderConfig) -> EncoderConfig:
        """The network that the method needs where the user asks for `encoder`."""
        return encoder

    def know_present(self, present: Mapping[str, Tensor]) -> None:
        """Which samples (n,) have which field, where some lack some."""
        raise UserError(f"--missing: {self.name} has no views that could be left out: use 0")

    def know_groups(self, groups: Tensor) -> None:
        """To which group each of the n samples belongs (n,), where the data says so: samples of one group are never
        each other's negatives."""
        self.register_buffer("groups", groups, persistent=False)  # the data tells it anew

    def owners(self, index: Tensor) -> Tensor:
        """The owners (N,) of the samples `index` (N,): their groups, or the samples themselves. Rows of one owner are
        never negatives of each other. A sample is twice in a batch where it stands in for an unreadable one."""
        return index if self.groups is None else self.groups[index]

    @classmethod
    def small(cls, samples: int, views: int) -> Setup:
        """Preset `small`, for `samples` small images. Batches hold the same number of views for every method."""
        optim = cls.paper.optim if cls.paper.optim.optimizer == "adam" else OptimConfig(lr=0.06)
        return Setup({**cls.on_small_images}, replace(optim, batch_size=min(512 // views, samples)))

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float] | None:
        """The hyper-parameters that CACR's C.1 sets otherwise; None if C.1 has no values for the method."""
        return None

    @classmethod
    def in_cmc_setup(cls, setup: CMCSetup) -> Setup | None:
        """The settings of CMC's appendix E; None if it has none for the method."""
        return None

    @classmethod
    def chance(cls, config: Any, batch: int) -> Chance | None:
        """The loss at chance, with `batch` samples contrasted at once. None if it depends on more than the number of
        candidates, such as on a temperature."""
        return None

    def learner(self) -> nn.Module:
        """What `embed` calls: the encoder, or a module of it and of layers that are trained but not exported."""
        return self.encoder

    def through(self) -> nn.Module:
        if not self._through:
            self._through = (self.learner(),)
        return self._through[0]

    def parallelise(self) -> None:
        """From now on the gradients of the learner, and of nothing else, are averaged over the ranks."""
        self._through = (distributed.parallel(self.learner()),)

    def embed(self, *samples: Any) -> Any:
        """Of an encoder: unit embeddings (N, D) of images (N, C, h, w), with gradient; of one with a network for each
        view: by view, of fields by name. One call in each step."""
        return self.through()(*samples)

    def deferred_average(self) -> AbstractContextManager[None]:
        """For all parts of a step but the last: gradients are averaged over the ranks once, in the last part."""
        return distributed.deferred_average(self.through())

    @abstractmethod
    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        """May be called for several parts of a batch before `after_step`: what that needs must add up."""

    def after_step(self) -> None:
        """Nothing, unless the method keeps state of its own."""


@dataclass(frozen=True)
class QueueConfig:
    queue_size: Annotated[int, Positive] = 65_536
    """Keys of earlier batches in the queue, which are the negatives; at most the number of samples."""
    momentum: Annotated[float, Share] = 0.999
    """Momentum of the key encoder, a moving average of the query encoder."""
    queue_start: Literal["random", "empty"] = "random"
    """`random`: the queue starts with random unit vectors. `empty`: slots are masked until they are filled."""
    mask_own: bool = False
    """Mask a sample's own earlier keys in the queue."""
    key_passes: Annotated[int, Positive] = 1
    """Encode the keys of a step in N forward passes, each with its own batch statistics. More passes need less memory;
    with as many as keys per sample, a pass is as large as the batch of queries."""


class Queued(Method):
    """A `step` leaves in `fresh` the keys that enter the queue after it."""

    config: Any

    def __init__(self, config: QueueConfig, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        if config.queue_size > samples:
            raise UserError(
                f"--queue-size {config.queue_size} exceeds the {samples} samples of --data, so that every sample would "
                f"meet its own old keys as negatives: use --queue-size {max(1, samples // 2)} or less"
            )
        self.keys = Momentum(encoder, config.momentum, passes=config.key_passes)
        self.queue = self.new_queue()
        self.fresh: list[tuple[Any, Tensor]] = []  # keys and sample numbers of this step, enqueued after it

    def new_queue(self) -> Any:
        config = self.config
        return Queue(config.queue_size, self.encoder.dim, start=config.queue_start, mask_own=config.mask_own)

    @classmethod
    def small(cls, samples: int, views: int) -> Setup:
        """With a queue the batch can be small, and many small steps learn more than few large ones. Without split batch
        statistics the encoder would recognise the positive key by the batch it was normalised with."""
        batch = min(64, samples)
        own = {"momentum": 0.99, "queue_size": max(1, min(4096, samples // 8)), **cls.on_small_images}
        return Setup(own, OptimConfig(lr=0.03, batch_size=batch), bn_splits=2 if batch % 2 == 0 else 1)

    @classmethod
    def chance(cls, config: Any, batch: int) -> Chance | None:
        return Chance(config.queue_size + 1)

    def know_groups(self, groups: Tensor) -> None:
        super().know_groups(groups)
        for queue in self.queue.modules():
            if isinstance(queue, Queue):  # one, or one for each view
                queue.know_groups(groups)

    def encode_keys(self, views: Any, batch: ViewBatch) -> Any:
        """The keys (N, M, D) of some views (M, N, 3, h, w) of the batch, without gradient; of towers by view."""
        return self.keys.encode(views, seed=self.seed, step=batch.step, part=batch.part)

    def after_step(self) -> None:
        self.keys.update(self.encoder)
        keys, index = zip(*self.fresh, strict=True)
        self.enqueue(keys, torch.cat(index))
        self.fresh.clear()

    def enqueue(self, keys: Sequence[Any], index: Tensor) -> None:
        self.queue.push(torch.cat(list(keys)), index)
