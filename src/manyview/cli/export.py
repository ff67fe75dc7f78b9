"""`manyview export`: write an encoder for other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from manyview.cli.shared import console

__all__ = ["run"]


@dataclass(frozen=True)
class Args:
    """Write the encoder for other programs."""

    run: tyro.conf.Positional[Path]
    """Run directory or encoder file."""
    out: Path
    """The .safetensors file to write."""
    format: Literal["torchvision", "timm", "safetensors"] = "safetensors"
    """Names of the weights: those of torchvision, those of timm, or manyview's own file, which also holds image size
    and normalisation."""


def run(words: list[str]) -> None:
    args = tyro.cli(Args, prog="manyview export", args=words)
    from manyview.encoders import export

    export(args.run, args.out, args.format)
    console.print(f"{args.out}: {args.format}", soft_wrap=True)
