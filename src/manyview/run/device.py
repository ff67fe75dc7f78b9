"""The device that --device names."""

import torch

from manyview import distributed
from manyview.errors import UserError


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if name == "cuda" and distributed.world_size() > 1:
            torch.cuda.set_device(distributed.local_device())
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"--device {name} cannot be used here ({str(error).splitlines()[0]}): use cpu or auto"
        ) from error
    return device
