"""Features of images in a file, for other programs."""

from pathlib import Path
from typing import Unpack

import numpy as np

from manyview.atomic import replacing
from manyview.data.source import Source
from manyview.encoders import FrozenEncoder
from manyview.evaluate.features import Features, Pass, extract

__all__ = ["embed"]


def embed(encoder: FrozenEncoder, source: Source, out: str | Path, **how: Unpack[Pass]) -> Features:
    """Writes an .npz file with `ids`, `embeddings` and, where known, `labels` and `classes`; returns what it wrote."""
    features = extract(encoder, source, **how)
    arrays = {
        "ids": np.array([source.id(number) for number in features.index.tolist()], dtype=np.str_),
        "embeddings": features.embeddings.numpy(),
    }
    if source.labels is not None:
        arrays |= {"labels": features.labels.numpy(), "classes": np.array(source.classes, dtype=np.str_)}
    with replacing(Path(out)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return features
