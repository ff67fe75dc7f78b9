"""`manyview embed`: the features of images in a file."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from manyview.arguments import Called, Positional
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, names, opened, parsed, ranks, use_threads


@dataclass(frozen=True)
class Embed:
    """Write the features of images to a file: ids, embeddings, and labels if there are any. An interrupted command
    goes on when it is given again. Under torchrun the processes share the images."""

    run: Annotated[str, Positional]
    """Run directory, encoder file, weights of another program, or timm:NAME."""
    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The file to write."""
    format: Literal["npz", "parquet"] | None = None
    """`npz`: arrays of NumPy. `parquet`: a table, for FiftyOne, pandas and others. Default: by the ending of --out."""
    split: Literal["train", "test"] = "train"
    """Which split, if the data has two."""
    unlabelled: bool = False
    """Do not read labels."""
    view: str | None = None
    """Use only these views of an encoder with a network per view, such as L or L,depth. Default: all."""
    depth_scale: Annotated[float | None, Positive] = None
    """Metres per unit of depth files. Default: that of the run; of an encoder file 0.001, for millimetres."""
    intrinsics: str | None = None
    """Camera intrinsics fx,fy,cx,cy, for normals computed from depth. Default: those of the run; of an encoder file
    Kinect's."""
    value_range: tuple[float, float] | None = None
    """LOW HIGH: the values of image files that are black and white. Default: those of the run."""
    images_per_pass: Annotated[int, Positive, Called(("--batch-size",))] = 256
    """Images per forward pass of the encoder."""
    workers: Annotated[int | Literal["auto"], NotNegative] = "auto"
    """Processes that read and decode. `auto`: 0 for packed sets, else one per processor."""
    device: str = "auto"
    """cpu, cuda, …"""
    threads: Annotated[int | None, Positive] = None
    """Threads that compute. Default: one per core."""

    def __call__(self) -> None:
        from manyview import distributed
        from manyview.encoders import load
        from manyview.evaluate.embed import embed
        from manyview.evaluate.features import left_out_before
        from manyview.evaluate.split import camera_of
        from manyview.run.device import pick_device

        use_threads(self.threads)
        encoder = load(self.run)
        if self.view is not None:
            encoder = encoder.only(names(self.view))
        camera = camera_of(self.run, self.depth_scale, self.intrinsics, self.value_range)
        with distributed.first_on_each_machine():
            camera = replace(camera, channels=encoder.card.in_channels)
            source = opened(self.data, self.split, labelled=not self.unlabelled, camera=camera)
        written = embed(
            encoder,
            source,
            self.out,
            self.format,
            batch_size=self.images_per_pass,
            workers=self.workers,
            device=pick_device(self.device),
            progress=not console.quiet,
        )
        lost = len(written.unreadable) + len(left_out_before(source))
        console.print(
            f"{self.out}: {len(written):,} embeddings of {source.name}, unreadable images: {lost:,}", soft_wrap=True
        )


def run(words: list[str]) -> None:
    command = parsed(Embed, words)
    with ranks():
        command()
