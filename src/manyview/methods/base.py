"""What the loop asks of a method."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from manyview import distributed
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import Encoder, EncoderConfig
from manyview.errors import UserError

__all__ = ["Chance", "Method", "Paper", "ViewBatch"]


@dataclass(frozen=True)
class ViewBatch:
    """One batch as views, and where in the run it stands."""

    views: Tensor  # (V, N, C, h, w), where C is 3 without further images
    index: Tensor  # (N,) sample numbers
    step: int
    steps: int  # of the whole run
    part: int = 0  # which of the parts whose gradients the step adds up

    @property
    def images(self) -> Tensor:
        """(V, N, 3, h, w), of samples that are images alone."""
        return self.views

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


@dataclass(frozen=True)
class Chance:
    """What guessing costs: the loss of an encoder to which all images look alike."""

    candidates: float  # among which a positive is told
    terms: int = 1  # of such losses, added up

    @property
    def loss(self) -> float:
        return self.terms * math.log(self.candidates)


class Method(nn.Module):
    """A way to learn: `step` turns a batch into {"loss": …, diagnostics…}; `after_step` follows the optimizer."""

    name: ClassVar[str]
    title: ClassVar[str]
    """As papers write the name."""
    Config: ClassVar[type[Any]]
    paper: ClassVar[Paper]

    watchable: ClassVar[bool] = True
    """Whether embeddings are compared, so that there is a contrast to watch."""

    encoder: Encoder  # what is trained, evaluated and exported

    def __init__(self, config: Any, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__()
        self.config, self.encoder, self.seed = config, encoder, seed
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
        """Which samples (n,) have which further image, where some lack some."""
        raise UserError(f"--missing: {self.name} has no views that could be left out: use 0")

    @classmethod
    def chance(cls, config: Any, batch: int) -> Chance | None:
        """Where the loss tells a positive from others, with `batch` samples contrasted at once; None where the loss of
        guessing depends on more than their number, such as on a temperature."""
        return None

    def learner(self) -> nn.Module:
        """What `embed` calls: the encoder, or one with company that learns with it and is not exported."""
        return self.encoder

    def through(self) -> nn.Module:
        if not self._through:
            self._through = (self.learner(),)
        return self._through[0]

    def parallelise(self) -> None:
        """From now on the gradients of the learner, and of nothing else, are averaged over the ranks."""
        self._through = (distributed.parallel(self.learner()),)

    def embed(self, *images: Tensor) -> Any:
        """Of an encoder: unit embeddings (N, D) of images (N, C, h, w), with gradient. One call in each step."""
        return self.through()(*images)

    def deferred_average(self) -> AbstractContextManager[None]:
        """For all parts of a step but the last: their gradients stay here until then."""
        return distributed.deferred_average(self.through())

    @abstractmethod
    def step(self, batch: ViewBatch) -> dict[str, Tensor]:
        """May be called for several parts of a batch before `after_step`: what that needs must add up."""

    def after_step(self) -> None:
        """Nothing, unless the method keeps state of its own."""
