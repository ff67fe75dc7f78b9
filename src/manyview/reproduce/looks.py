"""What recipes measure on finished runs: accuracies, and how they and the entropy of the negatives grew."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from manyview.data import Source, holdout, open_source
from manyview.data.source import track
from manyview.diagnose.monitor import SAMPLES, ContrastMonitor
from manyview.encoders import FrozenEncoder, load
from manyview.evaluate.features import extract
from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.evaluate.protocol import Protocol
from manyview.evaluate.records import Record
from manyview.evaluate.run import evaluate
from manyview.evaluate.split import open_test
from manyview.reproduce.job import Row
from manyview.reproduce.setting import Setting
from manyview.run.build import build_augment
from manyview.run.device import pick_device
from manyview.run.files import read_config
from manyview.run.saved import saved_config
from manyview.run.snapshots import encoders_of, steps_of

__all__ = [
    "CONTRAST_AT_END",
    "Accuracy",
    "AccuracyCurve",
    "BesideRandom",
    "EntropyCurve",
    "HeldOut",
    "place_in_run",
    "tested_images",
]

T_NEG = 2.0  # of the entropy, for all methods
CONTRAST_AT_END = ("--contrast-every", "10000")  # epochs; the last step is always measured, enough for the diagnosis


@dataclass(frozen=True)
class Accuracy:
    """Top-1 in per cent on the test images, of classifiers fitted on the whole training set: columns knn and linear."""

    protocols: tuple[Protocol, ...]
    views: tuple[str, ...] = ()
    """Of an encoder with a network for each view, only these."""

    @property
    def name(self) -> str:
        return "-".join((*(type(protocol).__name__.lower() for protocol in self.protocols), *self.views))

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        records = evaluate(
            run, self.protocols, setting.train, setting.test, views=self.views, random=False,
            workers=setting.workers, device=pick_device(setting.device),
        )  # fmt: skip
        return [dict(map(_column, records))]


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
        found: dict[tuple[tuple[str, ...], str], Row] = {}
        seed = saved_config(run)[1].run.seed  # random weights are others for each run
        for views in self.groups:
            records = evaluate(
                run, self.protocols, setting.train, setting.test, views=views, seed=seed, workers=setting.workers,
                device=pick_device(setting.device),
            )  # fmt: skip
            for record in records:
                named = {"view": ",".join(views)} if views else {}
                row = found.setdefault((views, record.encoder), {**named, "encoder": record.encoder})
                row |= dict([_column(record)])
        return list(found.values())


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
        return [
            {
                "knn": _percent(Knn().score(train, test, progress=True).value),
                "linear": _percent(Linear().score(train, test, progress=True).value),
            }
        ]


@dataclass(frozen=True)
class EntropyCurve:
    """Conditional entropy of the negative weights (CACR, Eq. 8) at each snapshot, always on the same test images."""

    name: str = "entropy"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        method, config = saved_config(run)
        images, device = tested_images(setting), pick_device(setting.device)
        samples = SAMPLES if setting.scale == "laptop" else len(images)  # the paper takes every batch
        monitor = ContrastMonitor(
            images, build_augment(method, config), name=images.name, t_neg=T_NEG, workers=setting.workers,
            samples=samples,
        )  # fmt: skip
        rows = []
        for step, encoder in track(encoders_of(run), "entropy of the snapshots", len(steps_of(run))):
            seen = monitor(encoder.to(device))
            rows.append(
                {
                    **place_in_run(run, step),
                    "entropy": f"{seen['entropy']:.4f}",
                    "max_entropy": f"{seen['max_entropy']:.4f}",
                    "uniformity": f"{seen['uniformity']:.4f}",
                }
            )
        return rows


@dataclass(frozen=True)
class AccuracyCurve:
    """Linear accuracy at each snapshot."""

    protocol: Protocol

    @property
    def name(self) -> str:
        return f"accuracy-curve-{type(self.protocol).__name__.lower()}"

    def __call__(self, run: Path, setting: Setting) -> list[Row]:
        return list(self._rows(run, setting))

    def _rows(self, run: Path, setting: Setting) -> Iterator[Row]:
        method, config = saved_config(run)
        look = build_augment(method, config)
        for step, encoder in encoders_of(run):
            frozen = FrozenEncoder.of(encoder, image_size=config.views.image_size, mean=look.mean, std=look.std)
            [record] = evaluate(
                frozen, self.protocol, setting.train, setting.test, random=False, workers=setting.workers,
                device=pick_device(setting.device),
            )  # fmt: skip
            yield {**place_in_run(run, step), "linear": _column(record)[1]}


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
