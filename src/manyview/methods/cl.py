"""CL, as CACR calls it: the loss of SimCLR in the set-up in which CACR compares objectives."""

from dataclasses import dataclass

from manyview.methods.many_views import ManyViews, SmallSet
from manyview.methods.simclr import SimCLR, SimCLRConfig

__all__ = ["CL", "CLConfig"]


@dataclass(frozen=True)
class CLConfig(SimCLRConfig):
    """Conventional contrast, as a rival of CACR (Oord et al. 2018; Chen et al. 2020)."""

    temperature: float = 0.2
    """τ of the softmax: 0.2 on ImageNet, 0.19 on CIFAR and STL-10."""


class CL(SimCLR):
    name = "cl"
    title = "CL"
    Config = CLConfig
    paper = ManyViews.paper
    config: CLConfig

    @classmethod
    def on_small_sets(cls, dataset: SmallSet, views: int) -> dict[str, float]:
        return {"temperature": 0.19}
