"""Evaluates what a run has learnt, beside the same network with random weights."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from manyview.encoders import FrozenEncoder, load, random_like
from manyview.evaluate.features import extract
from manyview.evaluate.files import Record, append_record
from manyview.evaluate.knn import Knn, knn
from manyview.evaluate.linear import Linear, linear
from manyview.evaluate.linear_sgd import LinearAdam, LinearSgd, train_linear
from manyview.evaluate.score import Score
from manyview.evaluate.split import Split, splits

__all__ = ["PROTOCOLS", "Protocol", "evaluate", "table"]

Protocol = Knn | Linear | LinearSgd | LinearAdam
PROTOCOLS: dict[str, type[Protocol]] = {
    "knn": Knn,
    "linear": Linear,
    "linear-sgd": LinearSgd,
    "linear-adam": LinearAdam,
}


def evaluate(
    run: str | Path,
    protocol: Protocol,
    data: str,
    test_data: str | None = None,
    *,
    random: bool = True,
    seed: int = 0,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> list[Record]:
    """One record for the random encoder (unless `random` is False) and one for the trained one.

    `run` is a run directory, which keeps the records in its evaluations.json, or an encoder file. `batch_size` is the
    number of images per pass, which for `LinearSgd` and `LinearAdam` is that of a training step (CACR: 128 with Adam).
    """
    trained = load(run)
    split = splits(data, test_data)
    encoders = {"random": random_like(trained, seed)} if random else {}
    records = []
    for name, encoder in (encoders | {"trained": trained}).items():
        start = time.perf_counter()
        score = _judge(
            protocol, encoder.to(device), split, seed=seed, batch_size=batch_size, workers=workers, progress=progress
        )
        record = _record(protocol, name, split, score, time.perf_counter() - start)
        if Path(run).is_dir():
            append_record(run, record)
        records.append(record)
    return records


def _judge(
    protocol: Protocol,
    encoder: FrozenEncoder,
    split: Split,
    *,
    seed: int,
    batch_size: int,
    workers: int,
    progress: bool,
) -> Score:
    reading: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "progress": progress}
    if isinstance(protocol, LinearSgd):
        return train_linear(encoder, split.train, split.test, protocol, seed=seed, **reading)
    train, test = (extract(encoder, each, **reading).to(encoder.mean.device) for each in (split.train, split.test))
    if isinstance(protocol, Knn):
        return knn(train, test, **asdict(protocol), progress=progress)
    return linear(train, test, **asdict(protocol), seed=seed, progress=progress)


def _record(protocol: Protocol, encoder: str, split: Split, score: Score, seconds: float) -> Record:
    name = next(name for name, kind in PROTOCOLS.items() if type(protocol) is kind)
    return {
        "protocol": name,
        "encoder": encoder,
        "data": split.train.name,
        "test_data": split.words,
        **asdict(score),
        "unreadable": score.unreadable + len(_left_out_before(split)),
        "seconds": round(seconds, 3),
    }


def _left_out_before(split: Split) -> set[tuple[str, str]]:
    """Images that a packed copy has no room for, as they cannot be read; both parts of a held-out split list them."""
    return {image for source in (split.train, split.test) if source.size is not None for image in source.unreadable}


def table(records: Iterable[Record]) -> Table:
    """The records as a rich table; below it how the images were prepared and where the test samples come from."""
    records = list(records)
    lines = dict.fromkeys(line for record in records for line in _remarks(record))
    grid = Table(caption=Text("\n".join(lines)), caption_justify="left")
    for column in ("protocol", "encoder"):
        grid.add_column(column)
    for column in ("top-1 [95 %]", "top-5 [95 %]", "train", "test", "classes"):
        grid.add_column(column, justify="right")
    for record in records:
        grid.add_row(
            record["protocol"],
            record["encoder"],
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
