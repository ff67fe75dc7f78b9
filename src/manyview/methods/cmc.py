"""CMC: views of one sample, such as luminance and colours, are positives; views of other samples are negatives."""

from dataclasses import dataclass
from typing import final

from manyview.methods.banked import BankConfig, Banked
from manyview.methods.view_graph import CMC_PAPER


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
