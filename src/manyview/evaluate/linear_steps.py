"""What the papers' linear protocols share: a classifier trained in steps on augmented images."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from manyview import counter
from manyview.data.loader import Loader
from manyview.data.source import track
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError
from manyview.evaluate.features import extract, frozen
from manyview.evaluate.protocol import Protocol, Reading
from manyview.evaluate.result import Result
from manyview.evaluate.schedule import Steps
from manyview.evaluate.score import accuracy
from manyview.evaluate.split import Split
from manyview.views.augment import Augment
from manyview.views.policies import Policy

INIT_TAG = 0x1217
# The encoder normalises by itself, so the views stay in [0, 1].
CROPS_AND_FLIPS = Policy(
    scale=(0.08, 1.0), flip=0.5, jitter=0, grey=0, blur=0, solarise=0, mean=(0, 0, 0), std=(1, 1, 1)
)


@dataclass(frozen=True)
class LinearSteps(Steps, Protocol):
    """A linear classifier on random crops and flips. The accuracy is that of the last epoch, not of the best."""

    @abstractmethod
    def optimizer(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        """Of the classifier's weight and bias."""

    def run(self, encoder: FrozenEncoder, split: Split, reading: Reading) -> Result:
        """Nobody looks at the test samples before the last epoch is over."""
        train = split.train.select(encoder.card.fields)
        augment = Augment(
            CROPS_AND_FLIPS, views=1, size=encoder.image_size, seed=reading.seed, fields=encoder.card.fields
        )
        loader = Loader(
            train, batch_size=self.batch_size, seed=reading.seed, stop=0, workers=reading.workers, crop=augment.crop
        )
        loader.stop = self.epochs * loader.steps_per_epoch
        weight, bias, fitted, unreadable = _train(encoder, loader, augment, self, progress=reading.progress)
        features = extract(encoder, split.test, **reading.how)
        scores = F.linear(features.embeddings, weight.cpu(), bias.cpu())
        if not scores.isfinite().all():
            raise UserError(f"lr {self.lr} made the linear classifier diverge: use a smaller --lr")
        return accuracy(
            scores,
            features.labels,
            train_samples=len(train) - len(unreadable),
            unreadable=len(unreadable) + len(features.unreadable),
            preprocess=f"{features.preprocess}; random crops and flips at training",
            fitted=fitted,
        )


def _train(
    encoder: FrozenEncoder, loader: Loader, augment: Augment, protocol: LinearSteps, *, progress: bool
) -> tuple[Tensor, Tensor, float, set[int]]:
    """Weight (C, F) and bias (C,) after the last epoch, its accuracy on the views of that epoch, and the samples that
    could not be read."""
    place, train = encoder.mean.device, loader.source
    labels = train.labels
    if labels is None:
        raise ValueError(f"{train.name} has no labels")
    # As in MoCo: weight ~ N(0, 0.01²), bias 0.
    shape = len(train.classes), encoder.num_features
    weight = 0.01 * counter.normal(loader.seed, INIT_TAG, torch.arange(math.prod(shape))).view(shape)
    weight, bias = weight.to(place).requires_grad_(), torch.zeros(shape[0], device=place, requires_grad=True)
    optimizer = protocol.optimizer([weight, bias])
    unreadable: set[int] = set()
    right = torch.zeros((), device=place)
    with frozen(encoder):
        for batch in track(iter(loader), f"linear classifier on {train.name}", len(loader), show=progress):
            optimizer.param_groups[0]["lr"] = protocol.lr_at(batch.epoch)
            unreadable.update(batch.unreadable)
            with torch.no_grad():
                index = batch.index.to(place)
                crops = batch.map(lambda field: field.to(place))
                views = augment.apply(crops.fields, augment.plan(index, batch.epoch), cut=batch.cut)
                features = encoder({name: view[0] for name, view in views.items()})
            scores, truth = F.linear(features.float(), weight, bias), labels[batch.index].to(place)
            if batch.epoch + 1 == protocol.epochs:
                right += (scores.argmax(1) == truth).sum()
            loss = F.cross_entropy(scores, truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    seen = loader.steps_per_epoch * loader.batch_size
    return weight.detach(), bias.detach(), right.item() / seen, unreadable
