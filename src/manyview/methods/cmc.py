"""CMC: the views of one sample, such as its luminance and its colours, are told from those of other samples."""

from dataclasses import dataclass
from typing import final

from manyview.methods.banked import BankConfig, Banked
from manyview.methods.view_graph import CMC_PAPER

__all__ = ["CMC", "CMCConfig"]


@dataclass(frozen=True)
class CMCConfig(BankConfig):
    """Contrastive multiview coding with memory banks (Tian et al., ECCV 2020)."""


@final
class CMC(Banked):
    name = "cmc"
    title = "CMC"
    Config = CMCConfig
    paper = CMC_PAPER
    config: CMCConfig
