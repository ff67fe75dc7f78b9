"""CMC with a momentum encoder, a queue and the jigsaw branch of PIRL (Table 9)."""

from dataclasses import dataclass
from typing import Annotated, final

from manyview.bounds import Share
from manyview.methods.queued_graph import QueuedGraph, QueuedGraphConfig


@dataclass(frozen=True)
class CMCMoCoPIRLConfig(QueuedGraphConfig):
    """CMC with a momentum encoder, a queue and the jigsaw branch of PIRL (Tian et al., ECCV 2020, D.4)."""

    jigsaw: Annotated[float, Share] = 0.5
    """Weight w of the loss of jigsaws (nine shuffled patches of a sample); whole samples have 1 − w."""


@final
class CMCMoCoPIRL(QueuedGraph):
    name = "cmc-moco-pirl"
    title = "CMC + MoCo + PIRL"
    Config = CMCMoCoPIRLConfig
    config: CMCMoCoPIRLConfig
