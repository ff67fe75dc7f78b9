"""Features of images in a file, for other programs."""

from pathlib import Path

import numpy as np
import torch

from manyview.atomic import replacing
from manyview.data.source import Source
from manyview.encoders import FrozenEncoder
from manyview.evaluate.features import Features, extract

__all__ = ["embed"]


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
