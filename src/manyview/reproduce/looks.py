"""What recipes measure on finished runs: accuracies, how they and the entropy of the negatives grew, one query with its
positives and negatives, and how much the views of an image differ."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.manifold import TSNE
from torch import Tensor
from torch.nn import functional as F

from manyview.atomic import replacing
from manyview.data import Source, holdout, open_source
from manyview.data.source import track
from manyview.diagnose.embeddings import positive_similarity, separation
from manyview.diagnose.monitor import SAMPLES, VIEWS, ContrastMonitor
from manyview.encoders import Encoder, FrozenEncoder, load
from manyview.errors import UserError
from manyview.evaluate.features import extract
from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.evaluate.protocol import Protocol
from manyview.evaluate.records import Record
from manyview.evaluate.run import evaluate
from manyview.evaluate.split import open_test
from manyview.fields import IMAGE
from manyview.report.pictures import thumbnail, view_features
from manyview.reproduce.job import Row
from manyview.reproduce.setting import Setting
from manyview.run.build import build_augment
from manyview.run.device import pick_device
from manyview.run.files import read_config
from manyview.run.saved import saved_config
from manyview.run.snapshots import encoders_of, steps_of
from manyview.views import Augment, policy

T_NEG = 2.0  # of the entropy, for all methods


@dataclass(frozen=True)
class Accuracy:
    """Top-1 in per cent on the test images, of classifiers fitted on the whole training set: columns knn and linear."""

    protocols: tuple[Protocol, ...]
    views: tuple[str, ...] = ()  # of an encoder with a network for each view, only these

    @property
    def name(self) -> str:
        return "-".join((*(type(protocol).__name__.lower() for protocol in self.protocols), *self.views))

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        return [dict(map(_column, evaluated(run, self.protocols, setting, views=self.views, random=False)))]


@dataclass(frozen=True)
class BesideRandom:
    """kNN and linear accuracy of the trained encoder and of one with random weights; with `groups` of some views each,
    or of all of them (an empty group), whose names are then in a column of their own."""

    protocols: tuple[Protocol, ...]
    groups: tuple[tuple[str, ...], ...] = ((),)

    @property
    def name(self) -> str:
        return "-".join(("beside-random", *(",".join(views) for views in self.groups if views)))

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        seed, rows = saved_config(run)[1].run.seed, []  # random weights are others for each run
        for views in self.groups:
            records = evaluated(run, self.protocols, setting, views=views, seed=seed)
            named = {"view": ",".join(views)} if views else {}
            for encoder in ("random", "trained"):
                columns = (_column(record) for record in records if record.encoder == encoder)
                rows.append({**named, "encoder": encoder, **dict(columns)})
        return rows


@dataclass(frozen=True)
class HeldOut:
    """kNN and linear accuracy on a fifth of the training images, which the classifiers are not fitted on: for choices,
    which must not see the test images."""

    name: str = "held-out"
    share: float = 0.2

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        encoder = load(run).to(pick_device(setting.device))
        parts = holdout(open_source(setting.train), self.share)
        train, test = (extract(encoder, part, workers=setting.workers, progress=True) for part in parts)
        scores = {"knn": Knn().score(train, test, progress=True), "linear": Linear().score(train, test, progress=True)}
        return [{name: _percent(score.value) for name, score in scores.items()}]


@dataclass(frozen=True)
class EntropyCurve:
    """Conditional entropy of the negative weights (CACR, Eq. 8) at each snapshot, always on the same test images."""

    name: str = "entropy"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        method, config = saved_config(run)
        images = tested_images(setting)
        monitor = ContrastMonitor(
            images, build_augment(method, config), name=images.name, t_neg=T_NEG, workers=setting.workers,
            samples=setting.pick(SAMPLES, len(images)),  # the paper takes every batch
        )  # fmt: skip
        rows = []
        for step, encoder in track(encoders_of(run), "entropy of the snapshots", len(steps_of(run))):
            seen = monitor(encoder.to(pick_device(setting.device)))
            numbers = {name: f"{seen[name]:.4f}" for name in ("entropy", "max_entropy", "uniformity")}
            rows.append({**place_in_run(run, step), **numbers})
        return rows


@dataclass(frozen=True)
class AccuracyCurve:
    """Linear accuracy at each snapshot."""

    protocol: Protocol

    @property
    def name(self) -> str:
        return f"accuracy-curve-{type(self.protocol).__name__.lower()}"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        method, config = saved_config(run)
        look, rows = build_augment(method, config), []
        for step, encoder in encoders_of(run):
            frozen = FrozenEncoder.of(encoder, image_size=config.views.image_size, mean=look.mean, std=look.std)
            [record] = evaluated(frozen, (self.protocol,), setting, random=False)
            rows.append({**place_in_run(run, step), "linear": _column(record)[1]})
        return rows


def evaluated(
    encoder: Path | FrozenEncoder, protocols: Sequence[Protocol], setting: Setting, **more: Any
) -> list[Record]:
    """`more` is what else `evaluate` takes."""
    device = pick_device(setting.device)
    return evaluate(encoder, protocols, setting.train, setting.test, workers=setting.workers, device=device, **more)


def tested_images(setting: Setting) -> Source:
    return open_test(setting.test or setting.train)


def place_in_run(run: Path, step: int) -> Row:
    """The place in the run, in optimizer steps and in passes over its images."""
    facts = read_config(run)
    per_epoch = facts["data"]["samples"] // facts["config"]["optim"]["batch_size"]
    return {"step": str(step), "epoch": f"{step / per_epoch:.3f}"}


def _column(record: Record) -> tuple[str, str]:
    """Where an evaluation stands in the results, and its accuracy."""
    return record.protocol.partition("-")[0], _percent(record.result.value)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


SHOWN = 4  # negatives of either end
TILES, ORIGINAL = "closeup.npz", "original"  # a file, and how the names of those images in it begin
_CLOSEUP_TAG = 0x636C6F7365  # keeps this choice of images apart from others
_EPOCH = -1  # training counts from 0, so that these views are never learnt from


@dataclass(frozen=True)
class Batch:
    """Views (V, N, 3, h, w) of test images, normalised and as pixels, and the images themselves; the first view of the
    first is the query."""

    views: Tensor
    pixels: Tensor
    originals: list[Tensor]

    @torch.no_grad()
    def distances(self, encoder: Encoder) -> tuple[Tensor, dict[str, Tensor]]:
        """Unit embeddings (V + N - 1, D) of the query, its positives and its negatives, and by these roles the squared
        distances to the query, (1,), (V - 1,) and (N - 1,)."""
        own = encoder.forward(self.views[:, 0])  # (V, D)
        others = encoder.forward(self.views[0, 1:])  # (N - 1, D)
        near, far = 2 - 2 * own[1:] @ own[0], 2 - 2 * others @ own[0]
        return torch.cat([own, others]), {"query": torch.zeros(1), "positive": near, "negative": far}


def batch_of(run: Path, setting: Setting, size: int) -> Batch:
    method, config = saved_config(run)
    source, plain = tested_images(setting), build_augment(method, config)
    augment = Augment(plain.policy, views=VIEWS, size=plain.size, seed=plain.seed)
    numbers = source.some(config.run.seed, _CLOSEUP_TAG)[:size].tolist()
    samples = [source.read(number) for number in numbers]
    views = augment.views_of(samples, numbers, _EPOCH)
    pixels = augment.values(views)[IMAGE].mul(255).round().byte()
    return Batch(views[IMAGE], pixels, [thumbnail(sample[IMAGE]) for sample in samples])


@dataclass(frozen=True)
class Weights:
    """π⁺ of the positives and π⁻ of the negatives (Eq. 3, 4), largest first; pictures of them lie beside the run."""

    size: int = 128
    name: str = "weights"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        settings = saved_config(run)[1].method
        batch = batch_of(run, setting, self.size)
        _, encoder = next(encoders_of(run, steps_of(run)[-1:]))
        _, distances = batch.distances(encoder)
        signs = {"positive": settings.t_pos, "negative": -settings.t_neg}
        weights = {role: (sign * distances[role]).softmax(0) for role, sign in signs.items()}
        order = {role: weight.argsort(descending=True) for role, weight in weights.items()}
        ends = torch.cat([order["negative"][:SHOWN], order["negative"][-SHOWN:]])
        tiles = torch.cat([batch.pixels[:1, 0], batch.pixels[1:, 0][order["positive"]], batch.pixels[0, 1:][ends]])
        originals = {f"{ORIGINAL}{at}": batch.originals[at].numpy() for at in (0, *(1 + ends).tolist())}
        with replacing(run.parent / TILES) as file:
            np.savez(file, tiles=tiles.numpy(), **originals)
        return [
            {"role": role, "rank": str(rank), "distance": f"{distances[role][at]:.4f}", "weight": f"{weight[at]:.5f}"}
            for role, weight in weights.items()
            for rank, at in enumerate(order[role].tolist(), 1)
        ]


@dataclass(frozen=True)
class Map:
    """The batch in the plane by t-SNE, with the query in the middle, at three times of the training."""

    size: int = 128
    epochs: tuple[int, ...] = ()  # at the snapshots nearest to these; without any at the first, halfway and at the end
    name: str = "map"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        batch, rows = batch_of(run, setting, self.size), []
        for step, encoder in encoders_of(run, self.times(run)):
            when, (points, distances) = place_in_run(run, step), batch.distances(encoder)
            tsne = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), init="pca", random_state=0)
            plane = tsne.fit_transform(points.double().numpy())
            places = (plane - plane[0]).tolist()
            far = [(role, distance) for role, many in distances.items() for distance in many.tolist()]
            rows += [
                {**when, "role": role, "x": f"{x:.3f}", "y": f"{y:.3f}", "distance": f"{distance:.4f}"}
                for (role, distance), (x, y) in zip(far, places, strict=True)
            ]
        return rows

    def times(self, run: Path) -> set[int]:
        """The steps of these snapshots; the one before the first step is none of them."""
        kept = [step for step in steps_of(run) if step > 0]
        if not self.epochs:
            return {kept[0], kept[len(kept) // 2], kept[-1]}
        epoch = {step: float(place_in_run(run, step)["epoch"]) for step in kept}
        return {min(kept, key=lambda step: abs(epoch[step] - asked)) for asked in self.epochs}


BINS = 200  # over the range of similarities, 0 to 1, and of variances, 0 to 1/F
_SPREAD_TAG = 0x7370726561  # keeps this choice of images apart from others
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

    images: int  # fewer, where there are fewer test images
    views: int = 32
    training: bool = False  # from the training images, of which there must be as many

    @property
    def name(self) -> str:
        return f"spread-{self.images}x{self.views}{'-training' * self.training}"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        _, config = saved_config(run)
        encoder, source = load(run).to(pick_device(setting.device)), self.source(setting)
        plain = policy(config.views.augment, min_crop=config.views.min_crop, normalise=False)  # the encoder does it
        augment = Augment(plain, views=self.views, size=config.views.image_size, seed=config.run.seed)
        chosen = source.some(config.run.seed, _SPREAD_TAG)[: self.images]
        parts = []
        for some in track(chosen.split(_AT_ONCE), f"{self.views} views of each image"):
            samples = ((number, source.read(number)) for number in some.tolist())
            features = view_features({"": encoder}, augment, samples)[""]
            parts.append(similarity_and_variance(F.normalize(features, dim=-1)))
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


def samples(rows: Sequence[Mapping[str, str]]) -> Tensor:
    """The values of all images, each at the middle of its bin."""
    middles = [float(row["low"]) + float(row["step"]) / 2 for row in rows]
    return torch.tensor(middles).repeat_interleave(torch.tensor([int(row["count"]) for row in rows]))


def two_sample(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Kolmogorov and Smirnov's D, and the probability that a value of `first` exceeds one of `second`. No p: the two
    are of the same images, and so not independent."""
    return float(stats.ks_2samp(first.numpy(), second.numpy()).statistic), separation(first, second)
