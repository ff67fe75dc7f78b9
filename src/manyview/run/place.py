"""The directory in which a run may begin."""

from pathlib import Path

from manyview import distributed
from manyview.errors import UserError
from manyview.run.files import CONFIG, read_config


def place_for(run: Path) -> bool:
    """Refuses a directory that holds anything, but for one that the `torchrun` of this process has begun: then true."""
    # Only rank 0 looks: when another rank would, rank 0 might already have written to the directory.
    looks = distributed.rank() == 0
    ours = distributed.anyone(looks and begun_by_this_launch(run))
    if not ours and distributed.anyone(looks and run.exists() and (not run.is_dir() or any(run.iterdir()))):
        raise UserError(f"--out {run} is not empty: continue with `manyview resume {run}`, or name a new directory")
    return ours


def begun_by_this_launch(run: Path) -> bool:
    """Whether the `torchrun` of this process made the directory: then it holds no other run."""
    here = distributed.launch()
    return here is not None and (run / CONFIG).exists() and read_config(run).get("launch") == here
