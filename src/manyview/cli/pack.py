"""`manyview pack`: one file of many images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyview import bounds
from manyview.bounds import Positive
from manyview.cli.shared import console

__all__ = ["run"]


@dataclass(frozen=True)
class Args:
    """Pack any data into one memory-mapped file of uint8 images of one size."""

    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The .safetensors file to write. It can be given as --data."""
    image_size: Annotated[int | None, Positive] = None
    """Side in pixels to which images are resized and cropped. Needed if their sizes differ."""
    split: Literal["train", "test"] = "train"
    """Which split, if the data has two."""
    unlabelled: bool = False
    """Do not read the first directory level as labels."""


def run(words: list[str]) -> None:
    args = tyro.cli(Args, prog="manyview pack", args=words)
    bounds.check(args)
    from manyview.data import open_source, pack

    source = open_source(args.data, split=args.split, labelled=not args.unlabelled)
    packed = pack(source, args.out, image_size=args.image_size)
    console.print(f"{args.out}: {len(packed)} images of {packed.size}", soft_wrap=True)
