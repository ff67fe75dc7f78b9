"""What an evaluation leaves on disk: embeddings for other programs, and the records of a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyview.atomic import replacing
from manyview.data.source import Source
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError
from manyview.evaluate.features import Features, extract
from manyview.run.files import EVALUATIONS

__all__ = ["Record", "append_record", "embed", "read_records"]

# protocol, encoder, layer (None: the features), views (None: all), data, test_data, and the fields of Score
Record = dict[str, Any]
IDENTITY = ("protocol", "encoder", "layer", "views", "data", "test_data")


def append_record(run: str | Path, record: Record) -> None:
    """Adds a record to the run's evaluations.json; one of the same protocol, encoder, layer, views and data is
    replaced."""
    # Older records have no layer and no views.
    others = [old for old in read_records(run) if any(old.get(key) != record.get(key) for key in IDENTITY)]
    with replacing(Path(run) / EVALUATIONS) as file:
        file.write(json.dumps([*others, record], indent=2, ensure_ascii=False).encode() + b"\n")


def read_records(run: str | Path) -> list[Record]:
    """The evaluations of a run, newest last; none when it was never evaluated."""
    path = Path(run) / EVALUATIONS
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
    with replacing(Path(out)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return features
