"""Evaluates what a run has learnt, beside the same network with random weights."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch
from rich.table import Table
from rich.text import Text

from manyview.data.source import Source
from manyview.encoders import FrozenEncoder, load, random_like
from manyview.errors import UserError
from manyview.evaluate.features import Features, extract, extract_layers, left_out_before
from manyview.evaluate.files import Record, append_record
from manyview.evaluate.knn import Knn, knn
from manyview.evaluate.linear import Linear, linear
from manyview.evaluate.linear_sgd import LinearAdam, LinearSgd, train_linear
from manyview.evaluate.mlp import Mlp, mlp
from manyview.evaluate.score import Score
from manyview.evaluate.split import Split, splits

__all__ = ["PROTOCOLS", "Protocol", "evaluate", "table"]

Protocol = Knn | Linear | Mlp | LinearSgd | LinearAdam
PROTOCOLS: dict[str, type[Protocol]] = {kind.name: kind for kind in get_args(Protocol)}


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
    workers: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> list[Record]:
    """One record for the random encoder (unless `random` is False) and one for the trained one; with `layers`, of the
    protocols that cache features, one for each layer of each. `views` takes of an encoder with a network for each view
    only some. Protocols that cache features share one pass over the data, whose time the first of them has in its
    seconds.

    `run` is a run directory, which keeps the records in its evaluations.json, an encoder file, or an encoder. A
    `device` moves the encoder there. `batch_size` is the number of images that it gets at once; the batches of a
    classifier's training belong to its protocol.
    """
    trained = run if isinstance(run, FrozenEncoder) else load(run)
    if views:
        trained = trained.only(views)
    protocols = protocol if isinstance(protocol, Sequence) else [protocol]
    for each in protocols:
        if layers and isinstance(each, LinearSgd):
            raise UserError(f"--layer {','.join(layers)}: {each.name} has no layers; take linear, mlp or knn")
    trained.check_layers(layers)  # a wrong name is said before the images are read
    split = splits(data, test_data)
    encoders = {"random": random_like(trained, seed)} if random else {}
    records = []
    for name, encoder in (encoders | {"trained": trained}).items():
        start = time.perf_counter()
        for judged, layer, score in _judge(
            protocols,
            encoder.to(device),
            split,
            layers,
            seed=seed,
            batch_size=batch_size,
            workers=workers,
            progress=progress,
        ):
            record = _record(judged, name, layer, views, split, score, time.perf_counter() - start)
            if not isinstance(run, FrozenEncoder) and Path(run).is_dir():
                append_record(run, record)
            records.append(record)
            start = time.perf_counter()
    return records


def _judge(
    protocols: Sequence[Protocol],
    encoder: FrozenEncoder,
    split: Split,
    layers: Sequence[str],
    *,
    seed: int,
    batch_size: int,
    workers: int,
    progress: bool,
) -> Iterator[tuple[Protocol, str | None, Score]]:
    """The score of each layer, or of the features (None)."""
    reading: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "progress": progress}
    on_features = []
    for protocol in protocols:
        if isinstance(protocol, LinearSgd):
            yield protocol, None, train_linear(encoder, split.train, split.test, protocol, seed=seed, **reading)
        else:
            on_features.append(protocol)
    if not on_features:
        return
    train, test = (_cached(encoder, each, layers, **reading) for each in (split.train, split.test))
    for layer in list(train):
        pair = [each.pop(layer).to(encoder.mean.device) for each in (train, test)]
        for protocol in on_features:
            score = _fit(protocol, *pair, seed=seed, progress=progress)
            yield protocol, layer or None, score


def _cached(encoder: FrozenEncoder, source: Source, layers: Sequence[str], **reading: Any) -> dict[str, Features]:
    """By layer; under no name the features."""
    return extract_layers(encoder, source, layers, **reading) if layers else {"": extract(encoder, source, **reading)}


def _fit(protocol: Knn | Linear | Mlp, train: Features, test: Features, *, seed: int, progress: bool) -> Score:
    if isinstance(protocol, Knn):
        return knn(train, test, protocol, progress=progress)
    if isinstance(protocol, Mlp):
        return mlp(train, test, protocol, seed=seed, progress=progress)
    return linear(train, test, protocol, seed=seed, progress=progress)


def _record(
    protocol: Protocol,
    encoder: str,
    layer: str | None,
    views: Sequence[str],
    split: Split,
    score: Score,
    seconds: float,
) -> Record:
    return {
        "protocol": protocol.name,
        "encoder": encoder,
        "layer": layer,
        "views": ",".join(views) or None,
        "data": split.train.name,
        "test_data": split.words,
        **asdict(score),
        "unreadable": score.unreadable + len(left_out_before(split.train, split.test)),
        "seconds": round(seconds, 3),
    }


def table(records: Iterable[Record]) -> Table:
    """The records as a rich table; below it how the images were prepared and where the test samples come from."""
    records = list(records)
    lines = dict.fromkeys(line for record in records for line in _remarks(record))
    grid = Table(caption=Text("\n".join(lines)), caption_justify="left")
    parts = [part for part in ("views", "layer") if any(record.get(part) for record in records)]
    for column in ("protocol", "encoder", *parts):
        grid.add_column(column)
    for column in ("top-1 [95 %]", "top-5 [95 %]", "train", "test", "classes"):
        grid.add_column(column, justify="right")
    for record in records:
        grid.add_row(
            record["protocol"],
            record["encoder"],
            *(record.get(part) or "–" for part in parts),
            _percent(record["top1"], record["top1_interval"]),
            _percent(record["top5"], record["top5_interval"]),
            *(f"{record[key]:,}" for key in ("train_samples", "test_samples", "classes")),
        )
    return grid


def _remarks(record: Record) -> Iterator[str]:
    yield f"images: {record['preprocess']}"
    yield f"fitted on {record['data']}, tested on {record['test_data']}"
    if record.get("unreadable"):
        yield f"{record['unreadable']:,} unreadable images left out"


def _percent(share: float | None, interval: Sequence[float] | None) -> str:
    if share is None or interval is None:
        return "–"
    return f"{100 * share:.1f} % [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
