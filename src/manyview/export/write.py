"""Writes an encoder in one of the formats."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from manyview.atomic import out_file
from manyview.encoders import Card, announced, as_frozen, open_weights
from manyview.errors import UserError
from manyview.export import detectron2, hub, onnx, statedict
from manyview.export.formats import ENDINGS, Format, check
from manyview.export.job import Job, Loading

WRITERS: dict[Format, Callable[[Job], Loading]] = {
    "safetensors": statedict.of_manyview,
    "timm": statedict.of_timm,
    "torchvision": statedict.of_torchvision,
    "onnx": onnx.write,
    "hf": hub.write,
    "detectron2": detectron2.write,
}


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    card: Card
    num_features: int
    size: int
    """Bytes."""
    loading: Loading


def export(spec: str | Path, out: str | Path, format: Format) -> Exported:
    """Writes the backbone for others to load. `spec` names any weights: see `encoders.open_weights`.

    `torchvision` loads into torchvision.models, but for its classifier; `timm` into timm.create_model(num_classes=0);
    `safetensors` is our own file. `onnx` is a graph with the normalisation inside, `hf` a folder for the Hugging Face
    hub, `detectron2` what MoCo's converter writes.
    """
    out, ending = Path(out), ENDINGS[format]
    others = [name for name, each in ENDINGS.items() if each == out.suffix]
    if out.suffix != ending and (ending or others):
        wanted = f"end in {ending}" if ending else "name a folder"
        raise UserError(f"--out {out} must {wanted}{f', or say --format {others[0]}' if others else ''}")
    with out_file(out, folder=not ending):
        weights = announced(open_weights(spec))
        check(weights.card, format)
        encoder = as_frozen(weights)  # only what loads is handed on
        loading = WRITERS[format](Job(encoder, weights, Path(spec).expanduser(), out))
    size = sum(file.stat().st_size for file in ([out] if out.is_file() else out.iterdir()))
    return Exported(out, weights.card, encoder.num_features, size, loading)
