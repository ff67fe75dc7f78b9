"""Recognition of views: the one protocol that needs no labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from manyview.bounds import Several
from manyview.data.source import Source, readable
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError
from manyview.evaluate.features import Features, check_channels
from manyview.evaluate.protocol import Protocol, Reading
from manyview.evaluate.result import Metric, Result
from manyview.evaluate.score import bootstrap
from manyview.evaluate.split import Split
from manyview.views import Augment, policy
from manyview.views.policies import for_channels

_TAG = 0x5265636F  # keeps the choice of samples apart from other uses of the seed
_AT_ONCE = 16  # samples: photographs may be large
VIEWS = 2


@dataclass(frozen=True)
class Recognise(Protocol):
    """Share of views whose nearest neighbour among all views is the other view of the same image. No labels needed."""

    name = "recognise"
    title = "Recognition of views"
    cheap = True
    needs_labels = False
    samples: Annotated[int, Several] = 512
    """Number of images, of which each has two views. With fewer images it is easier."""
    augment: str = "moco-v2"
    """Augmentation of the views, as in `pretrain`: the same for all encoders that are compared."""

    def run(self, encoder: FrozenEncoder, split: Split, reading: Reading) -> Result:
        def all_views(encoders: Sequence[FrozenEncoder]) -> list[dict[str, Features]]:
            return _view_features(encoders, split.test, self, reading)

        features = reading.shared(encoder, (split.test, self), all_views)[""]
        hits = recognised(features.embeddings.view(VIEWS, -1, features.embeddings.shape[1]))
        [interval] = bootstrap(hits[:, None])
        facts = {"test_samples": len(hits), "chance": 1 / (VIEWS * len(hits) - 1)}
        return Result(
            {"recognised": Metric(float(hits.mean()), interval)},
            "recognised",
            facts,
            features.preprocess,
            len(features.unreadable),
        )


def recognised(views: Tensor) -> Tensor:
    """Features (V, N, F) of V views of N images -> (N,): the share of an image's views that are nearest to another view
    of it. The mean feature is subtracted first: behind a ReLU it is what all images have in common."""
    flat = F.normalize((views - views.mean((0, 1))).flatten(0, 1).double(), dim=1)
    nearest = (flat @ flat.T).fill_diagonal_(-torch.inf).argmax(1)
    count = views.shape[1]
    return (nearest % count == torch.arange(len(flat), device=flat.device) % count).double().view(-1, count).mean(0)


@torch.no_grad()
def _view_features(
    encoders: Sequence[FrozenEncoder], source: Source, protocol: Recognise, reading: Reading
) -> list[dict[str, Features]]:
    """Of all encoders from one reading of the images: rows are the first views of all images, then the second ones."""
    names = tuple(dict.fromkeys(name for encoder in encoders for name in encoder.card.fields))
    source, chosen = source.select(names), policy(protocol.augment, normalise=False)
    for encoder in encoders:
        check_channels(encoder, source)
    if source.pixels.channels != 3:
        chosen = for_channels(chosen, source.pixels.channels)
    cuts = {
        encoder.image_size: Augment(
            chosen,
            views=VIEWS,
            size=encoder.image_size,
            seed=reading.seed,
            fields=names,
        )
        for encoder in encoders
    }
    order = source.some(reading.seed, _TAG).tolist()
    rows: list[list[Tensor]] = [[] for _ in encoders]
    numbers: list[int] = []
    samples = islice(readable(source, order), protocol.samples)
    while some := list(islice(samples, _AT_ONCE)):
        index = [number for number, _ in some]
        views = {size: cut.values(cut.views_of([each for _, each in some], index, 0)) for size, cut in cuts.items()}
        for encoder, parts in zip(encoders, rows, strict=True):
            flat = {
                name: view.flatten(0, 1).to(encoder.mean.device) for name, view in views[encoder.image_size].items()
            }
            parts.append(encoder(flat).cpu().unflatten(0, (VIEWS, -1)))
        numbers += index
    if len(numbers) < 2:
        raise UserError(f"--data {source.name} has {len(numbers)} readable images: two are needed to tell apart")
    shown = torch.tensor(numbers)
    words = f"two views by {protocol.augment}, "
    return [
        {"": Features(torch.cat(parts, 1).flatten(0, 1), shown, shown, preprocess=f"{words}{each.image_size} px")}
        for each, parts in zip(encoders, rows, strict=True)
    ]
