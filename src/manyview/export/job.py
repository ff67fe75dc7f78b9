"""What a writer gets and gives."""

from dataclasses import dataclass
from pathlib import Path

from manyview.encoders import Card, FrozenEncoder, Weights


@dataclass(frozen=True)
class Job:
    """An encoder that can be written in the format, and where to."""

    encoder: FrozenEncoder
    weights: Weights
    source: Path
    """What the user named; of a run, its directory."""
    out: Path

    @property
    def card(self) -> Card:
        return self.weights.card


@dataclass(frozen=True)
class Loading:
    """How others load what was written."""

    line: str
    """Python, or settings of detectron2."""
    normalisation: str
    """Who applies it."""
    remark: str = ""
