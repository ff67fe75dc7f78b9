"""One query of a batch with its positives and negatives: their weights, and where they lie (CACR, Fig. 6 and 7)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.manifold import TSNE
from torch import Tensor

from manyview import counter
from manyview.atomic import replacing
from manyview.diagnose.monitor import VIEWS
from manyview.encoders import Encoder
from manyview.fields import IMAGE
from manyview.report.pictures import thumbnail
from manyview.reproduce.job import Row
from manyview.reproduce.looks import place_in_run, tested_images
from manyview.reproduce.setting import Setting
from manyview.run.build import build_augment
from manyview.run.saved import saved_config
from manyview.run.snapshots import encoders_of, last_encoder, steps_of
from manyview.views import Augment

__all__ = ["ORIGINAL", "SHOWN", "TILES", "Map", "Weights"]

SHOWN = 4  # negatives of either end
TILES, ORIGINAL = "closeup.npz", "original"  # a file, and how the names of those images in it begin
_TAG = 0x636C6F7365  # keeps this choice of images apart from others
_EPOCH = -1  # training counts from 0, so that these views are never learnt from


@dataclass(frozen=True)
class Batch:
    """Views (V, N, 3, h, w) of test images, normalised and as pixels, and the images themselves; the first view of the
    first is the query."""

    views: Tensor
    pixels: Tensor
    originals: list[Tensor]

    @torch.no_grad()
    def distances(self, encoder: Encoder) -> tuple[Tensor, Tensor, Tensor]:
        """Unit embeddings (V + N - 1, D) of the query, its positives and its negatives, and the squared distances from
        the query to the positives (V - 1,) and to the negatives (N - 1,)."""
        own = encoder.forward(self.views[:, 0])  # (V, D)
        others = encoder.forward(self.views[0, 1:])  # (N - 1, D)
        return torch.cat([own, others]), 2 - 2 * own[1:] @ own[0], 2 - 2 * others @ own[0]


def batch_of(run: Path, setting: Setting, size: int) -> Batch:
    method, config = saved_config(run)
    source, plain = tested_images(setting), build_augment(method, config)
    augment = Augment(plain.policy, views=VIEWS, size=plain.size, seed=plain.seed)
    numbers = counter.permutation(len(source), config.run.seed, _TAG)[:size].tolist()
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
        _, config = saved_config(run)
        batch = batch_of(run, setting, self.size)
        _, near, far = batch.distances(last_encoder(run))
        found = {
            "positive": (near, (config.method.t_pos * near).softmax(0)),
            "negative": (far, (-config.method.t_neg * far).softmax(0)),
        }
        order = {role: weight.argsort(descending=True) for role, (_, weight) in found.items()}
        ends = torch.cat([order["negative"][:SHOWN], order["negative"][-SHOWN:]])
        tiles = torch.cat([batch.pixels[:1, 0], batch.pixels[1:, 0][order["positive"]], batch.pixels[0, 1:][ends]])
        originals = {f"{ORIGINAL}{at}": batch.originals[at].numpy() for at in (0, *(1 + ends).tolist())}
        with replacing(run.parent / TILES) as file:
            np.savez(file, tiles=tiles.numpy(), **originals)
        return [
            {"role": role, "rank": str(rank), "distance": f"{distance[at]:.4f}", "weight": f"{weight[at]:.5f}"}
            for role, (distance, weight) in found.items()
            for rank, at in enumerate(order[role].tolist(), 1)
        ]


@dataclass(frozen=True)
class Map:
    """The batch in the plane by t-SNE, with the query in the middle, at three times of the training."""

    size: int = 128
    epochs: tuple[int, ...] = ()
    """At the snapshots nearest to these; without any at the first, halfway and at the end."""
    name: str = "map"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        batch = batch_of(run, setting, self.size)
        rows = []
        for step, encoder in encoders_of(run, self.times(run)):
            points, near, far = batch.distances(encoder)
            plane = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), init="pca", random_state=0).fit_transform(
                points.double().numpy()
            )
            plane = plane - plane[0]
            roles = ["query", *["positive"] * len(near), *["negative"] * len(far)]
            distances = [0.0, *near.tolist(), *far.tolist()]
            rows += [
                {
                    **place_in_run(run, step),
                    "role": role,
                    "x": f"{x:.3f}",
                    "y": f"{y:.3f}",
                    "distance": f"{distance:.4f}",
                }
                for role, (x, y), distance in zip(roles, plane.tolist(), distances, strict=True)
            ]
        return rows

    def times(self, run: Path) -> set[int]:
        """The steps of these snapshots; the one before the first step is none of them."""
        kept = [step for step in steps_of(run) if step > 0]
        if not self.epochs:
            return {kept[0], kept[len(kept) // 2], kept[-1]}
        epoch = {step: float(place_in_run(run, step)["epoch"]) for step in kept}
        return {min(kept, key=lambda step: abs(epoch[step] - asked)) for asked in self.epochs}
