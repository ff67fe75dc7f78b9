"""CMC with the jigsaw branch of PIRL (Table 9)."""

from dataclasses import dataclass
from typing import Annotated, final

from manyview.bounds import Share
from manyview.methods.banked import BankConfig, Banked
from manyview.methods.view_graph import CMC_COMBINED


@dataclass(frozen=True)
class CMCPIRLConfig(BankConfig):
    """CMC with the jigsaw branch of PIRL (Tian et al., ECCV 2020, D.4)."""

    jigsaw: Annotated[float, Share] = 0.5
    """Weight w of the loss of jigsaws (nine shuffled patches of a sample); whole samples have 1 − w."""


@final
class CMCPIRL(Banked):
    name = "cmc-pirl"
    title = "CMC + PIRL"
    Config = CMCPIRLConfig
    paper = CMC_COMBINED
    config: CMCPIRLConfig
