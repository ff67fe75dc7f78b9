"""PIRL: a sample and its jigsaw are both contrasted with a memory bank of whole samples."""

from dataclasses import dataclass
from typing import Annotated, final

from manyview.bounds import Share
from manyview.methods.banked import BankConfig, Banked
from manyview.methods.view_graph import CMC_COMBINED


@dataclass(frozen=True)
class PIRLConfig(BankConfig):
    """PIRL with a memory bank (Misra and van der Maaten, CVPR 2020), as in CMC's Table 9."""

    views: str = "RGB"
    """The view that is contrasted with its own earlier embeddings: the whole image (RGB), or any other."""
    jigsaw: Annotated[float, Share] = 0.5
    """Weight w of the loss of jigsaws (nine shuffled patches of a sample); whole samples have 1 − w."""


@final
class PIRL(Banked):
    name = "pirl"
    title = "PIRL"
    Config = PIRLConfig
    paper = CMC_COMBINED
    config: PIRLConfig
