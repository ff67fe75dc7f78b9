"""`manyview export`: the encoder in the formats of other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from manyview.arguments import Positional
from manyview.cli.shared import console, parsed


@dataclass(frozen=True)
class Export:
    """Write the encoder for other programs."""

    run: Annotated[Path, Positional]
    """Run directory or encoder file."""
    out: Path
    """The .safetensors file to write."""
    format: Literal["torchvision", "timm", "safetensors"] = "safetensors"
    """`torchvision`, `timm`: state dict with their names. `safetensors`: manyview's own file, with image size and
    normalisation."""

    def __call__(self) -> None:
        from manyview.encoders import export

        export(self.run, self.out, self.format)
        console.print(f"{self.out}: {self.format}", soft_wrap=True)


def run(words: list[str]) -> None:
    parsed(Export, words)()
