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
    """Pack any data into one memory-mapped file of samples of one size, with all their fields."""

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
    depth_scale: Annotated[float, Positive] = 0.001
    """Metres per unit of depth files: 0.001 for millimetres."""
    intrinsics: str | None = None
    """Camera intrinsics fx,fy,cx,cy in pixels, for normals computed from depth. Default: Kinect's."""


def run(words: list[str]) -> None:
    args = tyro.cli(Args, prog="manyview pack", args=words)
    bounds.check(args)
    from manyview.data import Camera, open_source, pack

    camera = Camera(args.depth_scale, args.intrinsics)
    source = open_source(args.data, split=args.split, labelled=not args.unlabelled, camera=camera)
    source = source.select(source.fields)
    packed = pack(source, args.out, image_size=args.image_size)
    fields = f" with {', '.join(packed.fields)}" if len(packed.fields) > 1 else ""
    console.print(f"{args.out}: {len(packed)} images of {packed.size}{fields}", soft_wrap=True)
