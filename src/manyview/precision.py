"""What half precision is too coarse for."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision is raised to float32; float64 stays."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
