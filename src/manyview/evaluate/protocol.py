"""Protocols: frozen dataclasses of their settings that evaluate a frozen encoder."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from manyview import bounds
from manyview.data.loader import Workers
from manyview.data.source import Source
from manyview.encoders import FrozenEncoder
from manyview.evaluate.features import Features, Pass, extract_all
from manyview.evaluate.result import Result
from manyview.evaluate.split import Split


@dataclass(frozen=True)
class Reading:
    """How a protocol reads images, and the features that it shares with other protocols."""

    batch_size: int = 256
    """Images that the encoder gets at once."""
    workers: Workers = 0
    seed: int = 0
    progress: bool = False
    layers: Sequence[str] = ()
    """All layers that are asked for: one pass over the images serves them all."""
    layer: str | None = None
    """The layer that is evaluated; None: the features of the encoder."""
    encoders: Sequence[FrozenEncoder] = ()
    """All encoders that are asked for: one pass over the images serves them all too."""
    kept: dict[tuple[object, ...], dict[str, Features]] = field(default_factory=dict, repr=False)
    """Features of one encoder and one source, by layer."""

    @property
    def how(self) -> Pass:
        return {"batch_size": self.batch_size, "workers": self.workers, "progress": self.progress}

    def features(self, encoder: FrozenEncoder, split: Split) -> tuple[Features, Features]:
        """Those of the training and the test samples, where the encoder is. Each source is read once."""
        place = encoder.mean.device
        train, test = (self._all(encoder, each)[self.layer or ""].to(place) for each in (split.train, split.test))
        return train, test

    def _all(self, encoder: FrozenEncoder, source: Source) -> dict[str, Features]:
        return self.shared(encoder, (source,), lambda all: extract_all(all, source, self.layers, **self.how))

    def shared(
        self,
        encoder: FrozenEncoder,
        what: tuple[object, ...],
        make: Callable[[Sequence[FrozenEncoder]], list[dict[str, Features]]],
    ) -> dict[str, Features]:
        """What `make` gives of this encoder; it is asked once, for all encoders."""
        if (encoder, *what) not in self.kept:
            encoders = self.encoders or [encoder]
            found = zip(encoders, make(encoders), strict=True)
            self.kept.update({(each, *what): features for each, features in found})
        return self.kept[encoder, *what]

    def forget(self, encoder: FrozenEncoder) -> None:
        """Its features, when it is done: they may be large."""
        for key in [key for key in self.kept if key[0] is encoder]:
            del self.kept[key]


@dataclass(frozen=True)
class Protocol(ABC):
    """Its fields are its settings and become flags; the defaults are the paper's values."""

    name: ClassVar[str]
    title: ClassVar[str]
    takes_layers: ClassVar[bool] = False
    """Whether it can evaluate any layer of the backbone."""
    cheap: ClassVar[bool] = False
    """Whether baselines cost little beside the encoder that is evaluated: then they are by default."""
    needs_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        bounds.check(self)

    @abstractmethod
    def run(self, encoder: FrozenEncoder, split: Split, reading: Reading) -> Result:
        """Fits on `split.train` alone, measures on `split.test`."""

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, as JSON holds them."""
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return settings


class FeatureProtocol(Protocol):
    """A protocol on the cached features of every image."""

    takes_layers = True
    cheap = True

    def run(self, encoder: FrozenEncoder, split: Split, reading: Reading) -> Result:
        return self.score(*reading.features(encoder, split), seed=reading.seed, progress=reading.progress)

    @abstractmethod
    def score(self, train: Features, test: Features, *, seed: int = 0, progress: bool = False) -> Result:
        """The result on `test` of what is fitted on `train` alone."""
