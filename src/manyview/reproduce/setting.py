"""At which scale, on which images and with which seeds a recipe is run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

T = TypeVar("T")
Scale = Literal["laptop", "paper"]
ON_SCENES = "-scenes"  # how the names of files of results end


@dataclass(frozen=True)
class Setting:
    scale: Scale
    data: str
    seeds: tuple[int, ...]
    steps: int | None = None  # of every run, instead of the recipe's
    quick: bool = False  # batches so small that the figures mean nothing
    device: str = "auto"
    workers: int = 0
    threads: int = 2
    images: str = ""  # the set in words, once it is open

    @property
    def train(self) -> str:
        """A directory of train.tar and test.tar is two sets; anything else is what `pretrain --data` takes."""
        return str(Path(self.data) / "train.tar") if self._two_tars else self.data

    @property
    def test(self) -> str | None:
        """None where the set has a test split of its own."""
        return str(Path(self.data) / "test.tar") if self._two_tars else None

    @property
    def _two_tars(self) -> bool:
        return all((Path(self.data) / f"{part}.tar").is_file() for part in ("train", "test"))

    @property
    def set_name(self) -> str:
        """Of the images, in a word."""
        return Path(self.data.partition(":")[0]).name

    @property
    def as_planned(self) -> bool:
        """Whether the runs are as long as the laptop's recipes say, for which times are known."""
        return self.scale == "laptop" and not self.quick and self.steps is None

    def pick(self, laptop: T, paper: T) -> T:
        """What is meant for its scale."""
        return laptop if self.scale == "laptop" else paper

    @property
    def on_scenes(self) -> bool:
        return self.data.partition(":")[0] == "scenes"

    @property
    def suffix(self) -> str:
        """Of files of results, whose figures must not be mixed with others."""
        return ("-paper" if self.scale == "paper" else "") + (ON_SCENES if self.on_scenes else "")
