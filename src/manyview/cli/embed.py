"""`manyview embed`: write features to a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyview import bounds
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, names

__all__ = ["run"]


@dataclass(frozen=True)
class Args:
    """Write the features of images to a file: ids, embeddings, and labels if there are any."""

    run: tyro.conf.Positional[Path]
    """Run directory or encoder file."""
    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The .npz file to write."""
    split: Literal["train", "test"] = "train"
    """Which split, if the data has two."""
    view: str | None = None
    """Only these views of an encoder with a network per view, such as L or L,depth."""
    images_per_pass: Annotated[int, Positive, tyro.conf.arg(aliases=("--batch-size",))] = 256
    """Images per forward pass of the encoder."""
    workers: Annotated[int, NotNegative] = 0
    """Processes that read and decode."""
    device: str = "auto"
    """cpu, cuda, …"""


def run(words: list[str]) -> None:
    args = tyro.cli(Args, prog="manyview embed", args=words)
    bounds.check(args)
    from manyview.data import open_source
    from manyview.encoders import load
    from manyview.evaluate.embed import embed
    from manyview.evaluate.features import left_out_before
    from manyview.run.device import pick_device

    encoder = load(args.run)
    if args.view is not None:
        encoder = encoder.only(names(args.view))
    source = open_source(args.data, split=args.split)
    features = embed(
        encoder,
        source,
        args.out,
        batch_size=args.images_per_pass,
        workers=args.workers,
        device=pick_device(args.device),
        progress=console.is_terminal,
    )
    lost = len(features.unreadable) + len(left_out_before(source))
    console.print(
        f"{args.out}: {len(features):,} embeddings of {source.name}, unreadable images: {lost:,}", soft_wrap=True
    )
