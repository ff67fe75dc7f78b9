"""The papers' linear protocols: a linear classifier on a frozen backbone, trained step by step on augmented images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from manyview import counter
from manyview.data.loader import Loader
from manyview.data.source import Source, track
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError
from manyview.evaluate.features import extract, frozen
from manyview.evaluate.schedule import Steps, adam
from manyview.evaluate.score import Score, accuracy
from manyview.views.augment import Augment
from manyview.views.recipes import Recipe

__all__ = ["LinearAdam", "LinearSgd", "train_linear"]

INIT_TAG = 0x1217
# The encoder normalises by itself, so the views stay in [0, 1].
CROPS_AND_FLIPS = Recipe(
    scale=(0.08, 1.0), flip=0.5, jitter=0, grey=0, blur=0, solarise=0, mean=(0, 0, 0), std=(1, 1, 1)
)


@dataclass(frozen=True)
class LinearSgd(Steps):
    """The papers' linear protocol: SGD with momentum 0.9, without weight decay, on random crops and flips; the last
    epoch counts, never the best."""

    name: ClassVar[str] = "linear-sgd"
    title: ClassVar[str] = "Linear probe, SGD with augmentation"
    lr: float = 30.0
    """Learning rate: 30 for ImageNet, 10 for ImageNet-100 in JCL's experiments."""
    decay: float = 0.1
    """Factor by which it falls."""

    def optimizer(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr, momentum=0.9)


@dataclass(frozen=True)
class LinearAdam(LinearSgd):
    """CACR's linear protocol for small sets (App. C.1), after Wang and Isola: Adam with β = (0.5, 0.999) on random
    crops and flips; the last epoch counts, never the best."""

    name: ClassVar[str] = "linear-adam"
    title: ClassVar[str] = "Linear probe, Adam with augmentation"
    lr: float = 1e-3
    """Learning rate at the beginning."""
    decay: float = 0.2
    """Factor by which it falls."""
    batch_size: int = 128
    """Samples per training step."""

    def optimizer(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return adam(parameters, self.lr)


def train_linear(
    encoder: FrozenEncoder,
    train: Source,
    test: Source,
    protocol: LinearSgd,
    *,
    batch_size: int = 256,
    seed: int = 0,
    workers: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Score:
    """Accuracy on `test`, which nobody looks at before the last epoch is over, of a classifier trained on `train`.

    `batch_size` is the number of test images per pass; the training takes that of the protocol.
    """
    encoder.to(device)
    train, planes = train.showing(encoder.card.planes), encoder.card.planes
    augment = Augment(CROPS_AND_FLIPS, views=1, size=encoder.image_size, seed=seed, planes=planes)
    loader = Loader(train, batch_size=protocol.batch_size, seed=seed, stop=0, workers=workers, crop=augment.crop)
    loader.stop = protocol.epochs * loader.steps_per_epoch
    weight, bias, train_top1, unreadable = _train(encoder, loader, augment, protocol, progress=progress)
    features = extract(encoder, test, batch_size=batch_size, workers=workers, progress=progress)
    scores = F.linear(features.embeddings, weight.cpu(), bias.cpu())
    if not scores.isfinite().all():
        raise UserError(f"lr {protocol.lr} made the linear classifier diverge: use a smaller --lr")
    return accuracy(
        scores,
        features.labels,
        train_samples=len(train) - len(unreadable),
        unreadable=len(unreadable) + len(features.unreadable),
        preprocess=f"{features.preprocess}; random crops and flips at training",
        settings=protocol.settings,
        train_top1=train_top1,
    )


def _train(
    encoder: FrozenEncoder, loader: Loader, augment: Augment, protocol: LinearSgd, *, progress: bool
) -> tuple[Tensor, Tensor, float, set[int]]:
    """Weight (C, F) and bias (C,) after the last epoch, its accuracy on the views of that epoch, and the samples that
    could not be read."""
    place, train = encoder.mean.device, loader.source
    labels = train.labels
    if labels is None:
        raise ValueError(f"{train.name} has no labels")
    weight, bias = _initial(len(train.classes), encoder.num_features, loader.seed, place)
    optimizer = protocol.optimizer([weight, bias])
    unreadable: set[int] = set()
    right = torch.zeros((), device=place)
    with frozen(encoder):
        for batch in track(iter(loader), f"linear classifier on {train.name}", len(loader), show=progress):
            optimizer.param_groups[0]["lr"] = protocol.lr_at(batch.epoch)
            unreadable.update(batch.unreadable)
            with torch.no_grad():
                index = batch.index.to(place)
                features = encoder(augment.apply(batch.images.to(place), augment.plan(index, batch.epoch))[0])
            scores, truth = F.linear(features.float(), weight, bias), labels[batch.index].to(place)
            if batch.epoch + 1 == protocol.epochs:
                right += (scores.argmax(1) == truth).sum()
            loss = F.cross_entropy(scores, truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    seen = loader.steps_per_epoch * loader.batch_size
    return weight.detach(), bias.detach(), right.item() / seen, unreadable


def _initial(classes: int, features: int, seed: int, place: torch.device) -> tuple[Tensor, Tensor]:
    """As in MoCo: weight ~ N(0, 0.01²), bias 0."""
    weight = 0.01 * counter.normal(seed, INIT_TAG, torch.arange(classes * features)).view(classes, features)
    return weight.to(place).requires_grad_(), torch.zeros(classes, device=place, requires_grad=True)
