"""How much the features of many views of one image differ, as histograms over images (JCL, Fig. 3 and App. E)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from manyview import counter
from manyview.data import Source, open_source
from manyview.data.source import track
from manyview.diagnose import positive_similarity
from manyview.diagnose.embeddings import separation
from manyview.encoders import FrozenEncoder, load
from manyview.errors import UserError
from manyview.fields import IMAGE
from manyview.reproduce.job import Row
from manyview.reproduce.looks import tested_images
from manyview.reproduce.setting import Setting
from manyview.run.device import pick_device
from manyview.run.saved import saved_config
from manyview.views import Augment, policy

__all__ = ["BINS", "Spread", "samples", "similarity_and_variance", "two_sample"]

BINS = 200  # over the range of similarities, 0 to 1, and of variances, 0 to 1/F
_TAG = 0x7370726561  # keeps this choice of images apart from others
_AT_ONCE = 8  # images whose views are made together


def similarity_and_variance(views: Tensor) -> tuple[Tensor, Tensor]:
    """Unit features (V, N, F) -> for each image the mean cosine of all V×V pairs of its views (each with itself too, as
    the paper counts), and the mean of the diagonal of their covariance."""
    count = len(views)
    pairs = ((count - 1) * positive_similarity(views) + 1) / count
    return pairs, views.var(0, correction=0).mean(-1)


@dataclass(frozen=True)
class Spread:
    """Counts of images by the low edges of bins of similarity and of variance."""

    images: int
    """Fewer, where there are fewer test images."""
    views: int = 32
    training: bool = False
    """From the training images, of which there must be as many."""

    @property
    def name(self) -> str:
        return f"spread-{self.images}x{self.views}{'-training' * self.training}"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        _, config = saved_config(run)
        encoder, source = load(run).to(pick_device(setting.device)), self.source(setting)
        plain = policy(config.views.augment, min_crop=config.views.min_crop, normalise=False)  # the encoder does it
        augment = Augment(plain, views=self.views, size=config.views.image_size, seed=config.run.seed)
        chosen = counter.permutation(len(source), config.run.seed, _TAG)[: self.images].tolist()
        parts = [
            similarity_and_variance(_features(encoder, source, augment, chosen[start : start + _AT_ONCE]))
            for start in track(range(0, len(chosen), _AT_ONCE), f"{self.views} views of each image")
        ]
        similarities, variances = (torch.cat(each) for each in zip(*parts, strict=True))
        width = encoder.num_features
        return [
            {"quantity": quantity, "low": f"{number * step:.8g}", "step": f"{step:.8g}", "count": str(count)}
            for quantity, values, step in (
                ("similarity", similarities, 1 / BINS),
                ("variance", variances, 1 / (BINS * width)),
            )
            for number, count in sorted(Counter((values / step).floor().long().tolist()).items())
        ]

    def source(self, setting: Setting) -> Source:
        if not self.training:
            return tested_images(setting)
        source = open_source(setting.train)
        if len(source) < self.images:
            raise UserError(
                f"--data {setting.data} has {len(source):,} training images, and {self.images:,} are to be looked at: "
                "name a larger set"
            )
        return source


@torch.no_grad()
def _features(encoder: FrozenEncoder, source: Source, augment: Augment, numbers: list[int]) -> Tensor:
    """Unit features (V, n, F) of the views of some images."""
    views = augment.views_of([source.read(number) for number in numbers], numbers, 0)[IMAGE].clamp(0, 1)
    found = encoder(views.flatten(0, 1).to(encoder.mean.device)).cpu()
    return F.normalize(found, dim=1).unflatten(0, views.shape[:2])  # type: ignore[no-any-return]


def samples(rows: Sequence[Mapping[str, str]]) -> Tensor:
    """The values of all images, each at the middle of its bin."""
    middles = [float(row["low"]) + float(row["step"]) / 2 for row in rows]
    return torch.tensor(middles).repeat_interleave(torch.tensor([int(row["count"]) for row in rows]))


def two_sample(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Kolmogorov and Smirnov's D, and the probability that a value of `first` exceeds one of `second`. No p: the two
    are of the same images, and so not independent."""
    return float(stats.ks_2samp(first.numpy(), second.numpy()).statistic), separation(first, second)
