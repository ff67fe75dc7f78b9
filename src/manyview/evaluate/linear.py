"""Linear classification of cached features: multinomial logistic regression, fitted to the end with L-BFGS."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from manyview import counter
from manyview.bounds import AtLeastOne, NotNegative, Positive, ShareBelowOne
from manyview.data.source import track
from manyview.errors import UserError
from manyview.evaluate.features import Features
from manyview.evaluate.protocol import FeatureProtocol
from manyview.evaluate.result import Result
from manyview.evaluate.score import class_count, score_features, share_right

VALIDATION_TAG = 0x11EA
GRID = tuple(10 ** (-exponent / 2) for exponent in range(13))


@dataclass(frozen=True)
class Linear(FeatureProtocol):
    """Logistic regression on cached features. The L2 penalty is chosen on a held-out part of the training set."""

    name = "linear"
    title = "Linear probe on cached features"
    regularisation: Annotated[tuple[float, ...], NotNegative] = GRID
    """Candidate L2 penalties (per sample). A single value is used without a search."""
    validation: Annotated[float, Positive, ShareBelowOne] = 0.2
    """Fraction of the training set held out to choose the penalty. The final fit uses the whole set."""
    iterations: Annotated[int, AtLeastOne] = 200
    """Maximum number of L-BFGS iterations per fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.regularisation:
            raise UserError("--regularisation needs at least one number")

    def score(self, train: Features, test: Features, *, seed: int = 0, progress: bool = False) -> Result:
        # A class without training samples has no finite optimum: it is left out of the fit and never predicted.
        present, labels = torch.unique(train.labels, return_inverse=True)
        mean, scale = column_statistics(train.embeddings)
        inputs = _inputs(train.embeddings, mean, scale)
        penalty, start = _choose(inputs, labels, len(present), train, self, seed=seed, progress=progress)
        weights = fit(inputs, labels, len(present), penalty, iterations=self.iterations, start=start)
        scores = inputs.new_full((len(test), class_count(train.labels, test.labels)), -torch.inf)
        scores[:, present] = _inputs(test.embeddings, mean, scale) @ weights
        fitted = share_right(inputs @ weights, labels)
        return score_features(scores, train, test, {"regularisation": penalty}, fitted=fitted)


def column_statistics(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the columns of (n, F); a constant column is divided by 1."""
    deviation, mean = torch.std_mean(embeddings, 0, correction=0)
    return mean, torch.where(deviation > 1e-6 * mean.abs().clamp(min=1e-6), deviation, 1.0)


def _inputs(embeddings: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Standardised features with a column of ones for the bias: (n, F) -> (n, F + 1)."""
    return F.pad((embeddings - mean) / scale, (0, 1), value=1.0)


def _choose(
    inputs: Tensor, labels: Tensor, classes: int, train: Features, protocol: Linear, *, seed: int, progress: bool
) -> tuple[float, Tensor | None]:
    """The penalty with the best accuracy on the held-out part (the strongest of equals), and its weights there."""
    # Strong to weak, so that every fit starts from a smoother neighbour's solution.
    grid = sorted(protocol.regularisation, reverse=True)
    if len(grid) == 1:
        return grid[0], None
    held_out, rest = (part.to(inputs.device) for part in _validation(train, protocol.validation, seed))
    fitted, truth = inputs[rest], labels[rest]
    weights: Tensor | None = None
    best, best_accuracy = (grid[0], weights), -1.0
    for penalty in track(grid, "regularisation", show=progress):
        weights = fit(fitted, truth, classes, penalty, iterations=protocol.iterations, start=weights)
        accuracy = ((inputs[held_out] @ weights).argmax(1) == labels[held_out]).double().mean().item()
        if accuracy > best_accuracy:
            best, best_accuracy = (penalty, weights), accuracy
    return best


def _validation(train: Features, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions in `train` of about this share of the samples, and of the rest; a group is on one side."""
    of = train.index if train.groups is None else train.groups
    hashes, order = counter.bits(seed, VALIDATION_TAG, of).sort()
    count = max(1, round(share * len(order)))
    if train.groups is not None:  # up to the end of the group that is cut
        count = int((hashes <= hashes[count - 1]).sum())
    if count == len(order):
        what = "sample" if train.groups is None else "group"
        raise UserError(f"--regularisation: too few training {what}s to choose one of several: give one value")
    held_out, rest = order.tensor_split([count])
    return held_out, rest


def fit(
    inputs: Tensor,
    labels: Tensor,
    classes: int,
    penalty: float,
    *,
    iterations: Annotated[int, AtLeastOne] = 200,
    start: Tensor | None = None,
) -> Tensor:
    """Minimises mean cross entropy + penalty/2 ‖W‖² over W (F + 1, C); the last row, the bias, is not penalised.

    inputs (n, F + 1) end with a column of ones. In scikit-learn's terms penalty = 1 / (C n). L-BFGS looks for V with
    W = Pᵀ⁻¹ V, where P Pᵀ is the Hessian at W = 0: features of networks are so correlated that it needs a multiple of
    the iterations for W itself.
    """
    factor = _hessian_factor(inputs, classes, penalty)
    unit = torch.eye(len(factor)).to(factor)
    to_weights: Tensor = torch.linalg.solve_triangular(factor.mT, unit, upper=True).to(inputs)
    turned = inputs.new_zeros(inputs.shape[1], classes) if start is None else factor.mT.to(inputs) @ start
    turned.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [turned],
        max_iter=iterations,
        tolerance_grad=1e-6,
        tolerance_change=1e-10,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        weights = to_weights @ turned
        value = F.cross_entropy(inputs @ weights, labels) + penalty / 2 * weights[:-1].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return to_weights @ turned.detach()


def _hessian_factor(inputs: Tensor, classes: int, penalty: float) -> Tensor:
    """Lower Cholesky factor (F + 1, F + 1) of the Hessian at zero weights for one class, in float64.

    A 10⁻⁶th of the mean curvature is added, as features may depend on each other; that changes the way to the optimum,
    not the optimum.
    """
    hessian = (inputs.mT @ inputs).double() / (len(inputs) * classes)
    floor = 1e-6 * hessian.diagonal().mean()
    hessian.diagonal().add_(penalty + floor)
    factor: Tensor = torch.linalg.cholesky(hessian)
    return factor
