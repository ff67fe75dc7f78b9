"""What an evaluation leaves on disk: embeddings for other programs, and the records of a run."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyview.data.source import Source
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError
from manyview.evaluate.features import Features, extract

__all__ = ["Record", "append_record", "embed", "read_records"]

Record = dict[str, Any]  # protocol, encoder, data, test_data, and the fields of Score
IDENTITY = ("protocol", "encoder", "data", "test_data")


def append_record(run: str | Path, record: Record) -> None:
    """Adds a record to the run's evaluations.json; one of the same protocol, encoder and data is replaced."""
    others = [old for old in read_records(run) if any(old.get(key) != record[key] for key in IDENTITY)]
    with _written_whole(Path(run) / "evaluations.json") as path:
        path.write_text(json.dumps([*others, record], indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_records(run: str | Path) -> list[Record]:
    """The evaluations of a run, newest last; none when it was never evaluated."""
    path = Path(run) / "evaluations.json"
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): move it away and evaluate again") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise UserError(f"{path} does not hold a list of evaluations: move it away and evaluate again")
    return records


def embed(
    encoder: FrozenEncoder,
    source: Source,
    out: str | Path,
    *,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Features:
    """Writes an .npz file with `ids`, `embeddings` and, where known, `labels` and `classes`; returns what it wrote."""
    features = extract(encoder, source, batch_size=batch_size, workers=workers, device=device, progress=progress)
    arrays = {
        "ids": np.array([source.id(number) for number in features.index.tolist()], dtype=np.str_),
        "embeddings": features.embeddings.numpy(),
    }
    if source.labels is not None:
        arrays |= {"labels": features.labels.numpy(), "classes": np.array(source.classes, dtype=np.str_)}
    with _written_whole(Path(out)) as path, open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return features


@contextmanager
def _written_whole(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` once it is whole; a failure leaves only what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.parent / f".{path.name}.{os.getpid()}"
    try:
        yield aside
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
