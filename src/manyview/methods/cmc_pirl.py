"""CMC with the jigsaw branch of PIRL (Table 9)."""

from dataclasses import dataclass

from manyview.methods.cmc import CMC, COMBINED, CMCConfig

__all__ = ["CMCPIRL", "CMCPIRLConfig"]


@dataclass(frozen=True)
class CMCPIRLConfig(CMCConfig):
    """CMC with the jigsaw branch of PIRL (Tian et al., ECCV 2020, D.4)."""

    jigsaw: float = 0.5
    """Share of the loss in which nine shuffled patches stand for a sample."""


class CMCPIRL(CMC):
    name = "cmc-pirl"
    title = "CMC + PIRL"
    Config = CMCPIRLConfig
    paper = COMBINED
    config: CMCPIRLConfig
