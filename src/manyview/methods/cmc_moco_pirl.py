"""CMC with a momentum encoder, a queue and the jigsaw branch of PIRL (Table 9)."""

from dataclasses import dataclass

from manyview.methods.cmc_moco import CMCMoCo, CMCMoCoConfig

__all__ = ["CMCMoCoPIRL", "CMCMoCoPIRLConfig"]


@dataclass(frozen=True)
class CMCMoCoPIRLConfig(CMCMoCoConfig):
    """CMC with a momentum encoder, a queue and the jigsaw branch of PIRL (Tian et al., ECCV 2020, D.4)."""

    jigsaw: float = 0.5
    """Share of the loss in which nine shuffled patches stand for a sample."""


class CMCMoCoPIRL(CMCMoCo):
    name = "cmc-moco-pirl"
    title = "CMC + MoCo + PIRL"
    Config = CMCMoCoPIRLConfig
    config: CMCMoCoPIRLConfig
