"""Hyper-parameters shared by two methods of one objective: with negatives from the batch, and from a queue."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from torch import Tensor

from manyview.bounds import NotNegative, Positive, ShareBelowOne
from manyview.errors import UserError
from manyview.objectives import align_uniform, cacr, hard_negative


@dataclass(frozen=True)
class DoublyContrastive:
    t_pos: Annotated[float, NotNegative] = 1.0
    """t⁺: how much more the farther positives weigh. 1.0 in all of the paper's experiments (searched in 0.5-3.0)."""
    t_neg: Annotated[float, NotNegative] = 2.0
    """t⁻: how much more the nearer negatives weigh. The paper's values: 2.0 on ImageNet; on CIFAR-10, CIFAR-100 and
    STL-10 2.0, 3.0, 3.0 with one positive (K = 1) and 0.9, 2.0, 2.0 with four (`--preset paper-cifar` takes those)."""
    cost: Literal["euclidean", "inner", "rbf"] = "euclidean"
    """What a pair costs: squared distance (Eq. 12), negative inner product, or RBF in the repulsion (Eq. 14)."""
    rbf_t: Annotated[float, Positive] = 2.0
    """t of the RBF cost."""
    positive_weights: Literal["far", "near", "uniform"] = "far"
    """Positives that weigh most (Table 10's variants); uniform on both sides is UAUR (Eq. 11)."""
    negative_weights: Literal["near", "far", "uniform"] = "near"
    """Negatives that weigh most."""
    margin: float | None = None
    """Margin of the triplet form (App. B.5): queries whose repulsion exceeds their attraction by it do not count."""

    def __post_init__(self) -> None:
        if self.cost == "rbf" and self.margin is not None:
            raise UserError(
                f"--margin {self.margin} needs a cost of each query, and --cost rbf is one of all: leave one out"
            )

    def of(self, positives: Tensor, negatives: Tensor, *, detach_positive_weights: bool = False) -> Tensor:
        own = _own(self, DoublyContrastive)
        return cacr(positives, negatives, **own, detach_positive_weights=detach_positive_weights)


@dataclass(frozen=True)
class AlignUniform:
    t: Annotated[float, Positive] = 3.0
    """t of the uniformity's kernel: 3 on ImageNet, 2 on CIFAR and STL-10."""
    align_weight: Annotated[float, NotNegative] = 1.0
    """Weight of the alignment."""
    uniform_weight: Annotated[float, NotNegative] = 1.0
    """Weight of the uniformity."""
    contrastive_weight: Annotated[float, NotNegative] = 0.0
    """Weight of an additional InfoNCE loss, an option of the released code."""
    temperature: Annotated[float, Positive] = 0.2
    """τ of that InfoNCE: 0.2 on ImageNet, 0.19 on CIFAR and STL-10."""

    def of(self, positives: Tensor, negatives: Tensor) -> Tensor:
        return align_uniform(positives, negatives, **_own(self, AlignUniform))


@dataclass(frozen=True)
class HardNegatives:
    temperature: Annotated[float, Positive] = 0.5
    """τ of the softmax."""
    beta: Annotated[float, NotNegative] = 1.0
    """β, how much more hard negatives weigh; 0 gives debiased contrastive learning."""
    tau_plus: Annotated[float, ShareBelowOne] = 0.1
    """τ⁺, the assumed fraction of negatives of the query's own class; τ⁺ = 0 and β = 0 give CL."""

    def of(self, positives: Tensor, negatives: Tensor) -> Tensor:
        return hard_negative(positives, negatives, **_own(self, HardNegatives))


def _own(config: Any, kind: type[Any]) -> dict[str, Any]:
    """The hyper-parameters of the objective: the fields that `kind` declares."""
    return {field.name: getattr(config, field.name) for field in fields(kind)}
