"""`manyview embed`: the features of images in a file."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from manyview.arguments import Called, Positional
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, names, opened, parsed, use_threads


@dataclass(frozen=True)
class Embed:
    """Write the features of images to a file: ids, embeddings, and labels if there are any."""

    run: Annotated[Path, Positional]
    """Run directory or encoder file."""
    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The .npz file to write."""
    split: Literal["train", "test"] = "train"
    """Which split, if the data has two."""
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
        from manyview.encoders import load
        from manyview.evaluate.features import embed, left_out_before
        from manyview.evaluate.split import camera_of
        from manyview.run.device import pick_device

        use_threads(self.threads)
        encoder = load(self.run)
        if self.view is not None:
            encoder = encoder.only(names(self.view))
        camera = camera_of(self.run, self.depth_scale, self.intrinsics, self.value_range)
        source = opened(self.data, self.split, camera=replace(camera, channels=encoder.card.in_channels))
        features = embed(
            encoder,
            source,
            self.out,
            batch_size=self.images_per_pass,
            workers=self.workers,
            device=pick_device(self.device),
            progress=console.is_terminal,
        )
        lost = len(features.unreadable) + len(left_out_before(source))
        console.print(
            f"{self.out}: {len(features):,} embeddings of {source.name}, unreadable images: {lost:,}", soft_wrap=True
        )


def run(words: list[str]) -> None:
    parsed(Embed, words)()
