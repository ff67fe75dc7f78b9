"""Evaluates the encoder of a run beside others: random weights, raw pixels, where it started, and any other weights."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.table import Table
from rich.text import Text

from manyview.data.fieldfiles import KINECT_MM, Camera
from manyview.data.loader import Workers
from manyview.encoders import FrozenEncoder, Towers, as_frozen, load, open_weights, random_like
from manyview.errors import UserError, naming
from manyview.evaluate import described, find
from manyview.evaluate.features import left_out_before
from manyview.evaluate.pixels import NAME as PIXELS
from manyview.evaluate.pixels import SIDE, pixels_for
from manyview.evaluate.protocol import Protocol, Reading
from manyview.evaluate.records import Record, add_record
from manyview.evaluate.split import camera_of, splits, unlabelled
from manyview.run.files import START

TRAINED = "trained"
COUNTS = {"train_samples": "train", "test_samples": "test", "classes": "classes"}  # facts that have a column


def evaluate(
    run: str | Path | FrozenEncoder,
    protocol: Protocol | Sequence[Protocol],
    data: str,
    test_data: str | None = None,
    *,
    layers: Sequence[str] = (),
    views: Sequence[str] = (),
    random: bool = True,
    against: Sequence[str] = (),
    seed: int = 0,
    batch_size: int = 256,
    workers: Workers = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
    camera: Camera | None = None,
) -> list[Record]:
    """One record for the random encoder (unless `random` is False), for each that it is compared `against`, and for the
    trained one; with `layers`, of the protocols that cache features, one for each layer of each. `views` takes of an
    encoder with a network for each view only some. Protocols and encoders share one pass over the data where features
    are cached, whose time the first of them has in its seconds.

    `run` is a run directory, which keeps the records in its evaluations.json, other weights that `encoders.load` knows,
    or an encoder; `against` names such weights, or `pixels`, or `start`, from which the run began. A `device` moves the
    encoders there. `batch_size` is the number of images that they get at once; the batches of a classifier's training
    belong to its protocol. `camera` measured depth in files: that of a run directory, or Kinect's in millimetres.
    """
    protocols = protocol if isinstance(protocol, Sequence) else [protocol]
    for each in protocols:
        if layers and not each.takes_layers:
            others = ", ".join(name for name in described() if find(name).takes_layers)
            raise UserError(f"--layer {','.join(layers)}: {each.name} has no layers; take one of {others}")
    trained = run if isinstance(run, FrozenEncoder) else load(run)
    home = None if isinstance(run, FrozenEncoder) else Path(run).expanduser()
    encoders = {**_others(trained, home, [*["random"] * random, *against], layers, seed), TRAINED: trained}
    encoders = {name: _part(name, encoder, views, layers) for name, encoder in encoders.items()}
    if camera is None:
        camera = KINECT_MM if home is None else camera_of(home)
    labelled = any(each.needs_labels for each in protocols)
    camera = replace(camera, channels=trained.card.in_channels)
    split = (splits if labelled else unlabelled)(data, test_data, camera=camera)
    lost = len(left_out_before(split.train, split.test))
    for encoder in encoders.values():
        encoder.to(device)
    reading = Reading(batch_size, workers, seed, progress, layers, encoders=list(encoders.values()))
    records = []
    start = time.perf_counter()
    for name, encoder in encoders.items():
        asked: Sequence[str | None] = layers or [None]
        for layer in asked:
            for each in protocols:
                result = each.run(encoder, split, replace(reading, layer=layer))
                record = Record(
                    protocol=each.name,
                    settings=each.settings,
                    encoder=name,
                    data=split.train.name,
                    test_data=split.words,
                    result=replace(result, unreadable=result.unreadable + lost),
                    layer=layer,
                    views=",".join(views) or None,
                    seconds=round(time.perf_counter() - start, 3),
                )
                if home is not None and home.is_dir():
                    add_record(home, record)
                records.append(record)
                start = time.perf_counter()
        reading.forget(encoder)
    return records


def _others(
    trained: FrozenEncoder, home: Path | None, asked: Sequence[str], layers: Sequence[str], seed: int
) -> dict[str, FrozenEncoder]:
    """What the trained encoder is compared with, by name."""
    found = {}
    for spec in dict.fromkeys(asked):
        if spec == "random":
            found[spec] = random_like(trained, seed)
        elif spec == PIXELS:
            if layers:
                raise UserError(f"--against {PIXELS}: pixels have no layers, such as {layers[0]}: leave them out")
            found[spec] = pixels_for(trained)
        elif spec == "start":
            if home is None or not (home / START).is_file():
                raise UserError(f"--against start: {home} did not begin from given weights (--init): leave it out")
            found[spec] = load(home / START)
        else:
            with naming("--against"):
                weights = open_weights(spec)
                found[weights.name] = as_frozen(weights)
            if weights.remark:
                print(weights.remark, file=sys.stderr)
    if TRAINED in found:
        raise UserError(f"--against {TRAINED}: that is how the first encoder is called: write ./{TRAINED}")
    return found


def _part(name: str, encoder: FrozenEncoder, views: Sequence[str], layers: Sequence[str]) -> FrozenEncoder:
    """These views of it. A wrong name is said before the images are read."""
    if views and (name == TRAINED or isinstance(encoder.backbone, Towers)):
        encoder = encoder.only(views)
    encoder.check_layers(layers)
    return encoder


def table(records: Iterable[Record]) -> Table:
    """The records as a rich table with a column for each metric; below it how the images were prepared and where the
    test samples come from."""
    records = list(records)
    lines = dict.fromkeys(line for record in records for line in _remarks(record))
    grid = Table(caption=Text("\n".join(lines)), caption_justify="left")
    parts = [part for part in ("views", "layer") if any(getattr(record, part) for record in records)]
    metrics = list(dict.fromkeys(name for record in records for name in record.result.metrics))
    counts = [name for name in COUNTS if any(name in record.result.facts for record in records)]
    for column in ("protocol", "encoder", *parts):
        grid.add_column(column)
    for column in (*(f"{name} [95 %]" for name in metrics), *(COUNTS[name] for name in counts)):
        grid.add_column(Text(column), justify="right")
    for record in records:
        result = record.result
        grid.add_row(
            Text(record.label),
            record.encoder,
            *(getattr(record, part) or "–" for part in parts),
            *(Text(str(result.metrics.get(name, "–"))) for name in metrics),
            *(f"{result.facts[name]:,}" if name in result.facts else "–" for name in counts),
        )
    return grid


def _remarks(record: Record) -> Iterator[str]:
    if record.result.preprocess:
        yield f"images: {record.result.preprocess}"
    if record.encoder == PIXELS:
        yield f"{PIXELS}: the same images, averaged down to at most {SIDE}×{SIDE}, as vectors"
    fitted = f"fitted on {record.data}, " if "train_samples" in record.result.facts else ""
    yield f"{fitted}tested on {record.test_data}"
    if record.result.unreadable:
        yield f"{record.result.unreadable:,} unreadable images left out"
