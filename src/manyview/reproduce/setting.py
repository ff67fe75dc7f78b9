"""At which scale, on which images and with which seeds a recipe is run, and how long its runs are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

__all__ = ["ON_SCENES", "Length", "Scale", "Setting", "length"]

T = TypeVar("T")
Scale = Literal["laptop", "paper"]
QUICK_STEPS = 4
ON_SCENES = "-scenes"  # how the names of files of results end

# Seconds for one view of 32 px with `tiny` on two quiet cores: with a gradient, and as a key without one. From runs of
# moco-v2 (580 images/s) and of jcl with five keys (285 images/s).
WITH_GRADIENT, AS_KEY = 1.28e-3, 0.45e-3
EVALUATIONS = 45.0  # of one run, kNN and linear, on 60,000 images


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


@dataclass(frozen=True)
class Length:
    """Of a run: its flags, its column in the results, and its optimizer steps (epochs at the paper's scale)."""

    words: tuple[str, ...]
    steps: str
    count: int

    def seconds(self, samples: int, *, trained: int, keys: int = 0) -> float:
        """Expected for steps of so many samples, each with so many views that are trained on and so many keys."""
        return self.count * samples * (trained * WITH_GRADIENT + keys * AS_KEY) + EVALUATIONS


def length(setting: Setting, *, steps: int, epochs: int, share: float = 1.0) -> Length:
    """`steps` on a laptop, the paper's `epochs` at its scale, or what the user asks for; of the last, `share` is for
    runs that are meant to be shorter than others."""
    asked = setting.steps or (QUICK_STEPS if setting.quick else None)
    if asked is None and setting.scale == "paper":
        return Length(("--epochs", str(epochs)), f"{epochs} epochs", epochs)
    count = steps if asked is None else max(1, round(share * asked))
    return Length(("--max-steps", str(count)), str(count), count)
