"""`manyview export`: the encoder in the formats of other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from manyview.arguments import Positional
from manyview.bounds import Positive
from manyview.cli.shared import console, parsed, use_threads


@dataclass(frozen=True)
class Export:
    """Write the encoder for other programs."""

    run: Annotated[str, Positional]
    """Run directory, encoder file, weights of another program, or timm:NAME."""
    out: Path
    """What to write: a .safetensors, .onnx or .pkl file, or for `hf` a new folder."""
    format: Literal["torchvision", "timm", "safetensors", "onnx", "hf", "detectron2"] = "safetensors"
    """`torchvision`, `timm`: state dict with their names. `safetensors`: manyview's own file, with image size and
    normalisation. `onnx`: a graph for any runtime, checked against onnxruntime. `hf`: a folder for the Hugging Face
    hub, which timm loads. `detectron2`: a ResNet for its detectors, with the names of MoCo's converter."""
    threads: Annotated[int | None, Positive] = None
    """Threads that compute. Default: one per core."""

    def __call__(self) -> None:
        from manyview.export import export

        use_threads(self.threads)
        written = export(self.run, self.out, self.format)
        card, loading = written.card, written.loading
        mean, std = (" ".join(f"{number:.4g}" for number in numbers) for numbers in (card.mean, card.std))
        views = f" of the views {card.split}" if card.split else ""
        lines = [
            f"{self.out}: {self.format}, {written.size / 1e6:,.1f} MB",
            f"network: {card.backbone}{views}, images {card.in_channels}×{card.image_size}×{card.image_size}, "
            f"{written.num_features:,} features",
            f"normalisation: mean {mean}, std {std} ({loading.normalisation})",
            *([loading.remark] if loading.remark else []),
            f"load it: {loading.line}",
        ]
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False)


def run(words: list[str]) -> None:
    parsed(Export, words)()
