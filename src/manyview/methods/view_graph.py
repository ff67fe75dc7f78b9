"""What methods share that contrast the views of a sample along the edges of a graph."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from manyview import distributed
from manyview.config import OptimConfig, ViewConfig
from manyview.encoders import Encoder, EncoderConfig
from manyview.errors import UserError
from manyview.methods.base import CMCSetup, Method, Paper, Setup
from manyview.objectives import directions, multiview, mutual_information_bound
from manyview.objectives.multiview import Contrast, Direction, Scores
from manyview.objectives.rows import finite_counts
from manyview.views.named import named_views

CMC_PAPER = Paper(
    ViewConfig(augment="cmc"),
    EncoderConfig(head="linear"),
    OptimConfig(batch_size=256, lr=0.03, epochs=200, schedule="cosine"),
)
# CMC with parts of other methods, on a hundred classes of ImageNet (D.4).
CMC_COMBINED = replace(CMC_PAPER, optim=replace(CMC_PAPER.optim, epochs=240))
SGD = OptimConfig(lr=0.03, weight_decay=1e-4, schedule="step")  # of appendix E
ADAM = OptimConfig(optimizer="adam", lr=1e-3, weight_decay=0.0, schedule="step", decay=0.2)
CMC_PATCHES = Paper(
    ViewConfig(augment="cmc", image_size=64),
    EncoderConfig(backbone="alexnet-half-small", head="linear", dim=64),
    replace(ADAM, batch_size=256, epochs=200),
)


@dataclass(frozen=True)
class GraphConfig:
    views: str = "lab"
    """Views that are contrasted, with commas between, such as lab,depth. A colour space stands for both of its views
    (lab: L and ab; ydbdr: Y and DbDr; yiq, yuv, hsv, hed, rgb …); lab.L or L is one of them; RGB is the whole image.
    Data may have depth, normals and segmentation. A single view is contrasted with its own earlier embeddings."""
    graph: Literal["full", "core"] = "full"
    """Which pairs of more than two views are contrasted: all, or the core view with every other one."""
    core: str | None = None
    """The core view, such as L. The first one by default."""


class ViewGraph(Method):
    """`names` of the views, and the `directions` in which they meet; some views of some samples may be missing."""

    by_adam: ClassVar[bool] = False
    """Whether Adam is the optimizer in all set-ups of appendix E, and not on NYU Depth-V2 alone."""
    small_optim: ClassVar[Mapping[str, Any]] = {}
    """Settings of the optimizer for small images that differ from those of other methods."""
    config: Any

    @classmethod
    def view_count(cls, config: Any) -> int:
        return 1  # crop, of which the encoder makes the views that are contrasted

    @classmethod
    def encoder_config(cls, config: Any, encoder: EncoderConfig) -> EncoderConfig:
        """With a network for each view."""
        _view_names(config)
        return replace(encoder, split=config.views)

    @classmethod
    def small(cls, samples: int, views: int) -> Setup:
        setup = super().small(samples, views)
        return replace(setup, optim=replace(setup.optim, batch_size=min(256, samples), **cls.small_optim))

    @classmethod
    def in_cmc_setup(cls, setup: CMCSetup) -> Setup:
        if setup == "paper-nyu":
            return Setup({}, replace(ADAM, epochs=3000, milestones=(2000 / 3000, 2400 / 3000, 2800 / 3000)))
        if cls.by_adam:
            lr = 1e-2 if setup == "paper-alexnet" else 1e-3
            return Setup({}, replace(ADAM, epochs=200, milestones=(120 / 200, 160 / 200), lr=lr))
        if setup == "paper-stl10":
            return Setup({}, replace(SGD, epochs=320, milestones=(200 / 320, 240 / 320, 280 / 320)))
        return Setup({}, replace(SGD, epochs=200, milestones=(120 / 200, 160 / 200)))

    def __init__(self, config: Any, encoder: Encoder, *, samples: int, seed: int) -> None:
        super().__init__(config, encoder, samples=samples, seed=seed)
        self.names = _view_names(config)
        self.directions = directions(self.names, graph=config.graph, core=config.core)
        self.presence = Presence(self.names, samples)

    def know_present(self, present: Mapping[str, Tensor]) -> None:
        self.presence.know(present)

    def along_graph(
        self,
        views: Mapping[str, Tensor],
        scores: Scores,
        contrast: Contrast | Mapping[Direction, Contrast],
        index: Tensor,
        seen: "Seen | None" = None,
    ) -> Tensor:
        """`multiview` of these views; `seen` records the metrics."""
        each = contrast if isinstance(contrast, Mapping) else dict.fromkeys(self.directions, contrast)
        return multiview(
            views,
            scores,
            contrast=each if seen is None else {way: seen.recording(way, each[way]) for way in self.directions},
            graph=self.config.graph,
            core=self.config.core,
            present=self.presence.of(index),
            over_ranks=distributed.mean,
        )


class Seen:
    """Metrics of a step: the mean cosine of positives and, of a softmax, the lower bound on the mutual information of
    each pair of views (Eq. 6); over the samples that have both views, on all ranks."""

    def __init__(self, *, softmax: bool = True) -> None:
        self.softmax = softmax
        self.sums: dict[Direction, list[Tensor]] = {}  # by pair, of all its terms: cosines, samples, bounds

    def recording(self, direction: Direction, contrast: Contrast) -> Contrast:
        back = direction[::-1]
        parts = self.sums.setdefault(back if back in self.sums else direction, [])

        def recorded(positives: Tensor, negatives: Tensor, *, reduction: Literal["none"]) -> Tensor:
            terms = contrast(positives, negatives, reduction=reduction)
            with torch.no_grad():
                met = [positives.mean(1), torch.ones_like(terms)]
                if self.softmax:  # masked negatives are none, and without any nothing is known
                    met.append(mutual_information_bound(terms, finite_counts(negatives).clamp_min(1)))
                parts.append(torch.stack(met).sum(1))
            return terms

        return recorded

    def metrics(self) -> dict[str, Tensor]:
        sums = distributed.mean(torch.stack([torch.stack(parts).sum(0) for parts in self.sums.values()]))
        cosines, samples, *bounds = sums.T  # each by pair
        found = {"positive": cosines.sum() / samples.sum().clamp_min(1e-9)}
        if self.softmax:
            each = bounds[0] / samples.clamp_min(1e-9)
            found["information"] = each.mean()
            if len(each) > 1:
                found |= {f"information_{a}_{b}": bound for (a, b), bound in zip(self.sums, each, strict=True)}
        return found


class Presence(nn.Module):
    """Which of the samples have which view, where some lack some; a view of the colours is always there."""

    def __init__(self, names: list[str], samples: int) -> None:
        super().__init__()
        self.names, self.samples, self.known = names, samples, False

    def know(self, present: Mapping[str, Tensor]) -> None:
        self.known = True
        for name in self.names:
            there = present.get(name, torch.ones(self.samples, dtype=torch.bool))
            self.register_buffer(f"of_{name}", there, persistent=False)  # the data tells it anew

    def there(self, name: str) -> Tensor | None:
        """(n,) for all samples; None where all views are there."""
        return self.get_buffer(f"of_{name}") if self.known else None

    def at(self, index: Tensor, name: str) -> Tensor | None:
        """(N,) for the samples `index` (N,)."""
        return self.get_buffer(f"of_{name}")[index] if self.known else None

    def of(self, index: Tensor) -> dict[str, Tensor] | None:
        """(N,) by view for the samples `index` (N,)."""
        return {name: self.get_buffer(f"of_{name}")[index] for name in self.names} if self.known else None


def ways(config: GraphConfig) -> int:
    """How many directions there are, each with a term in the loss."""
    return len(directions(_view_names(config), graph=config.graph, core=config.core))


def _view_names(config: GraphConfig) -> list[str]:
    names = list(named_views(config.views))
    if config.core is not None and config.core not in names:
        raise UserError(f"--core {config.core} is none of the views {', '.join(names)}: choose one of them")
    if config.core is not None and config.graph == "full":
        raise UserError(f"--core {config.core} means nothing when all views meet: add --graph core, or leave it out")
    return names
