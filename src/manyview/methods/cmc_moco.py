"""CMC with a momentum encoder and a queue instead of memory banks (D.4)."""

from dataclasses import dataclass
from typing import final

from manyview.methods.queued_graph import QueuedGraph, QueuedGraphConfig


@dataclass(frozen=True)
class CMCMoCoConfig(QueuedGraphConfig):
    """CMC with a momentum encoder and a queue (Tian et al., ECCV 2020, D.4)."""


@final
class CMCMoCo(QueuedGraph):
    name = "cmc-moco"
    title = "CMC (MoCo)"
    Config = CMCMoCoConfig
    config: CMCMoCoConfig
