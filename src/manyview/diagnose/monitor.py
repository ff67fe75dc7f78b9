"""The contrast of an encoder during training, always measured on the same views of the same samples."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.data.loader import Workers, read_ahead, readers
from manyview.data.source import Source, Unreadable, track
from manyview.diagnose.contrast import CONTRAST, contrast
from manyview.diagnose.embeddings import effective_rank
from manyview.encoders import Encoder, joined
from manyview.errors import UserError
from manyview.evaluate.recognise import recognised
from manyview.fields import IMAGE
from manyview.precision import at_least_float32
from manyview.views import Augment

# The same for all methods, whatever they train with: otherwise their numbers could not be compared.
VIEWS, SAMPLES, BATCH, T_POS = 5, 512, 256, 1.0

_TAG = 0x7761746368  # keeps the choice of samples apart from other uses of the seed
_EPOCH = -1  # training counts from 0, so that these views are never learnt from
_AT_ONCE = 32  # samples whose views are made and embedded together: they may be large


class ContrastMonitor:
    """The `contrast` of encoders on views of some samples of a source, and two numbers that tell without labels what
    their features are worth. The views are cut once and kept."""

    def __init__(
        self, source: Source, augment: Augment, *, name: str, t_neg: float, workers: Workers = 0, samples: int = SAMPLES
    ) -> None:
        """`augment` gives policy, size and seed; `name` tells the user what `source` is. Unreadable images are
        passed over; `workers` processes read those that are not at hand as arrays."""
        self.name, self.fingerprint, self.t_neg = name, source.fingerprint, t_neg
        self.augment = Augment(augment.policy, views=VIEWS, size=augment.size, seed=augment.seed, fields=augment.fields)
        self.index, self.crops = _cut(source.select(augment.fields), self.augment, workers, samples)
        if len(self) < 2:
            raise UserError(
                f"contrast cannot be measured on {name}: it needs two images, and {len(self)} can be read: name other "
                "images with --contrast-data, or use --contrast-every 0"
            )

    def __len__(self) -> int:
        return len(self.index)

    def describe(self) -> dict[str, Any]:
        """What a run's configuration records of it."""
        return {
            "data": self.name,
            "samples": len(self),
            "views": VIEWS,
            "t_pos": T_POS,
            "t_neg": self.t_neg,
            "fingerprint": self.fingerprint,
        }

    @torch.no_grad()
    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Means over the batches. The encoder is left as it was found, and no other rank is needed."""
        with _evaluating(encoder):
            looks = [self._look(encoder, some) for some in torch.arange(len(self)).split(_AT_ONCE)]
        embeddings, features = (torch.cat(parts, 1) for parts in zip(*looks, strict=True))
        batches = [contrast(batch, t_pos=T_POS, t_neg=self.t_neg) for batch in embeddings.split(BATCH, 1)]
        return {
            **{name: sum(batch[name] for batch in batches) / len(batches) for name in CONTRAST},
            "recognised": float(recognised(features).mean()),
            "feature_rank": effective_rank(features[0]),
        }

    def _look(self, encoder: Encoder, some: Tensor) -> tuple[Tensor, Tensor]:
        """Unit embeddings (V, n, D) and unit features (V, n, F) of some of the samples, in full precision."""
        weight = next(encoder.parameters())
        plan = self.augment.plan(self.index[some].to(weight.device), _EPOCH)
        crops = {name: crop[some].to(weight.device) for name, crop in self.crops.items()}
        views = self.augment.apply(crops, plan, cut=True)
        flat = {name: view.flatten(0, 1).to(weight.dtype) for name, view in views.items()}
        # Not by a call: a compiled encoder would be compiled once more, for another mode and another size of batches.
        features = encoder.backbone(flat if encoder.config.split else flat[IMAGE])
        parts = features if isinstance(features, Mapping) else {IMAGE: features}
        unit = joined({name: F.normalize(at_least_float32(each), dim=1) for name, each in parts.items()})
        embedded = joined(encoder.embeddings(features))
        return embedded.cpu().view(VIEWS, len(some), -1), unit.cpu().view(VIEWS, len(some), -1)


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """In eval mode for a while. Every module gets its own mode back: some may be meant to differ from the whole."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _cut(source: Source, augment: Augment, workers: Workers, samples: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The numbers (N,) of samples that can be read, in whole batches, and their crops (N, V, c, size, size)."""
    # Where half of this many cannot be read, the set is broken.
    order = source.some(augment.seed, _TAG)[: 2 * samples].tolist()
    most = min(samples, len(source))
    crops: dict[str, Tensor] = {}
    kept: list[int] = []
    cuts = read_ahead(_Cut(source, augment), order, readers(source, workers) if source.size is None else 0)
    for number, cut in zip(order, track(cuts, f"views of {source.name} for the contrast", most), strict=False):
        if cut is not None:
            for name, views in cut.items():
                if name not in crops:
                    crops[name] = views.new_empty(most, *views.shape)
                crops[name][len(kept)] = views  # not a list of them: each would hold a file descriptor of its worker
            kept.append(number)
        if len(kept) == most:
            break
    whole = len(kept) // BATCH * BATCH or len(kept)  # batches of one size, as the entropy grows with it
    return torch.tensor(kept[:whole], dtype=torch.int64), {name: views[:whole] for name, views in crops.items()}


@dataclass(frozen=True)
class _Cut:
    source: Source
    augment: Augment

    def __call__(self, number: int) -> dict[str, Tensor] | None:
        """The crops of one sample, where it can be read."""
        try:
            return self.augment.crop(self.source.read(number), number, _EPOCH)
        except Unreadable:
            return None
