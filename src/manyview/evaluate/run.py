"""Evaluates the encoder of a run, and the same network with random weights as a baseline."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.table import Table
from rich.text import Text

from manyview.data.fieldfiles import KINECT_MM, Camera
from manyview.data.loader import Workers
from manyview.encoders import FrozenEncoder, load, random_like
from manyview.errors import UserError
from manyview.evaluate import described, find
from manyview.evaluate.features import left_out_before
from manyview.evaluate.protocol import Protocol, Reading
from manyview.evaluate.records import Record, add_record
from manyview.evaluate.split import camera_of, splits

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
    seed: int = 0,
    batch_size: int = 256,
    workers: Workers = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
    camera: Camera | None = None,
) -> list[Record]:
    """One record for the random encoder (unless `random` is False) and one for the trained one; with `layers`, of the
    protocols that cache features, one for each layer of each. `views` takes of an encoder with a network for each view
    only some. Protocols that cache features share one pass over the data, whose time the first of them has in its
    seconds.

    `run` is a run directory, which keeps the records in its evaluations.json, an encoder file, or an encoder. A
    `device` moves the encoder there. `batch_size` is the number of images that it gets at once; the batches of a
    classifier's training belong to its protocol. `camera` measured depth in files: that of a run directory, or Kinect's
    in millimetres, unless given.
    """
    trained = run if isinstance(run, FrozenEncoder) else load(run)
    if views:
        trained = trained.only(views)
    protocols = protocol if isinstance(protocol, Sequence) else [protocol]
    for each in protocols:
        if layers and not each.takes_layers:
            others = ", ".join(name for name in described() if find(name).takes_layers)
            raise UserError(f"--layer {','.join(layers)}: {each.name} has no layers; take one of {others}")
    trained.check_layers(layers)  # a wrong name is said before the images are read
    if camera is None:
        camera = KINECT_MM if isinstance(run, FrozenEncoder) else camera_of(Path(run))
    split = splits(data, test_data, camera=replace(camera, channels=trained.card.in_channels))
    lost = len(left_out_before(split.train, split.test))
    encoders = {"random": random_like(trained, seed)} if random else {}
    records = []
    for name, encoder in (encoders | {"trained": trained}).items():
        encoder.to(device)
        reading = Reading(batch_size, workers, seed, progress, layers)
        start = time.perf_counter()
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
                if not isinstance(run, FrozenEncoder) and Path(run).is_dir():
                    add_record(run, record)
                records.append(record)
                start = time.perf_counter()
    return records


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
    yield f"fitted on {record.data}, tested on {record.test_data}"
    if record.result.unreadable:
        yield f"{record.result.unreadable:,} unreadable images left out"
