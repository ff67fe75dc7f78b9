"""Classification of cached features by a small network, for what a linear classifier cannot separate."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import counter
from manyview.bounds import AtLeastOne, ShareBelowOne
from manyview.data.source import track
from manyview.errors import UserError
from manyview.evaluate.features import Features
from manyview.evaluate.linear import column_statistics
from manyview.evaluate.protocol import FeatureProtocol
from manyview.evaluate.result import Result
from manyview.evaluate.schedule import Steps, adam
from manyview.evaluate.score import class_count, score_features, share_right

ORDER_TAG = 0x313F
CHUNK = 4096


@dataclass(frozen=True)
class Mlp(Steps, FeatureProtocol):
    """One hidden layer on cached features, trained with Adam, β = (0.5, 0.999), as in CMC on STL-10 (D.1, E.1). The
    accuracy is that of the last epoch, not of the best."""

    name = "mlp"
    title = "Probe with one hidden layer"
    batch_size: Annotated[int, AtLeastOne] = 64
    """Batch size of the training, as in DIM."""
    hidden: Annotated[int, AtLeastOne] = 200
    """Units of the hidden layer."""
    dropout: Annotated[float, ShareBelowOne] = 0.1
    """Dropout rate of the hidden layer, which also has batch norm, as in DIM, which CMC follows."""

    def score(self, train: Features, test: Features, *, seed: int = 0, progress: bool = False) -> Result:
        if min(self.batch_size, len(train)) < 2:
            raise UserError("a step of one sample cannot be normalised: use --batch-size 64 and more samples")
        classes = class_count(train.labels, test.labels)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            network = _network(train.embeddings, classes, self)
            _train(network, train, self, seed=seed, progress=progress)
        network.eval()
        with torch.no_grad():
            fitted, scores = (
                torch.cat([network(part) for part in each.embeddings.split(CHUNK)]) for each in (train, test)
            )
        if not scores.isfinite().all() or not fitted.isfinite().all():
            raise UserError(f"lr {self.lr} made the classifier diverge: use a smaller --lr")
        return score_features(scores, train, test, {}, fitted=share_right(fitted, train.labels))


def _network(embeddings: Tensor, classes: int, protocol: Mlp) -> nn.Sequential:
    """Fresh, for features such as `embeddings` (n, F), which it standardises first: layers differ in their scales."""
    hidden = protocol.hidden
    network = nn.Sequential(
        _Standardise(*column_statistics(embeddings)),
        nn.Linear(embeddings.shape[1], hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(protocol.dropout),
        nn.Linear(hidden, classes),
    )
    return network.to(embeddings.device)


class _Standardise(nn.Module):
    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def _train(network: nn.Module, train: Features, protocol: Mlp, *, seed: int, progress: bool) -> None:
    """Every epoch in an order of its own, without the samples that do not fill a step."""
    optimizer = adam(network.parameters(), protocol.lr)
    size = min(protocol.batch_size, len(train))
    whole = len(train) // size * size
    for epoch in track(range(protocol.epochs), "classifier", show=progress):
        optimizer.param_groups[0]["lr"] = protocol.lr_at(epoch)
        order = counter.permutation(len(train), seed, ORDER_TAG, epoch)[:whole]
        for index in order.to(train.embeddings.device).split(size):
            loss = F.cross_entropy(network(train.embeddings[index]), train.labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
