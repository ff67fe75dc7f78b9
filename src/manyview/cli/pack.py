"""`manyview pack`: any data as one memory-mapped file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from manyview.bounds import Channels, Positive
from manyview.cli.shared import console, missing_from, opened, parsed, use_threads


@dataclass(frozen=True)
class Pack:
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
    channels: Annotated[int, Channels] = 3
    """Channels of the images: 1 for grey, 4 and more for satellite and microscopy images."""
    value_range: tuple[float, float] | None = None
    """LOW HIGH: the values of image files that are black and white, such as 0 4095 for 12 bits. Default: the least and
    the most that the file can hold."""
    threads: Annotated[int | None, Positive] = None
    """Threads that compute. Default: one per core."""

    def __call__(self) -> None:
        from manyview.data import Camera, pack

        use_threads(self.threads)
        source = opened(self.data, self.split, labelled=not self.unlabelled, camera=Camera.of(self))
        source = source.select(source.fields)
        packed = pack(source, self.out, image_size=self.image_size)
        fields = f" with {', '.join(packed.fields)}" if len(packed.fields) > 1 else ""
        console.print(
            f"{self.out}: {len(packed)} images of {packed.size}{fields}{missing_from(packed)}", soft_wrap=True
        )


def run(words: list[str]) -> None:
    parsed(Pack, words)()
