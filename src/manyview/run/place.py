"""The directory in which a run may begin."""

from pathlib import Path

from manyview import distributed
from manyview.errors import UserError
from manyview.run.files import CHECKPOINTS, CONFIG, SNAPSHOTS, START, kept, read_config

FIRST = (CONFIG, START, SNAPSHOTS, CHECKPOINTS)  # what there is of a run before its first checkpoint


def place_for(run: Path) -> bool:
    """Refuses a directory that holds anything but a run without a checkpoint, which may begin again. True for one that
    the `torchrun` of this process has begun."""
    # Only rank 0 looks: when another rank would, rank 0 might already have written to the directory.
    looks = distributed.rank() == 0
    ours = distributed.anyone(looks and begun_by_this_launch(run))
    if not ours and distributed.anyone(looks and run.exists() and not is_free(run)):
        raise UserError(f"--out {run} is not empty: continue with `manyview resume {run}`, or name a new directory")
    return ours


def is_free(run: Path) -> bool:
    """Whether nothing is lost by a run that begins here: also where one was stopped before its first checkpoint."""
    if not run.is_dir():
        return False
    names = {path.name for path in run.iterdir()}
    rest = names - {path.name for path in half_written(run)}
    return not rest or (rest <= set(FIRST) and CONFIG in rest and not kept(run / CHECKPOINTS) and is_ours(run))


def is_ours(run: Path) -> bool:
    try:
        return {"method", "config", "environment"} <= read_config(run).keys()
    except UserError:
        return False


def half_written(directory: Path) -> list[Path]:
    """What a process that was killed while it wrote one of the first files has left."""
    return [path for name in FIRST for path in directory.glob(f".{name}.*")]


def clear(run: Path) -> None:
    """Removes what a run that never reached its first checkpoint has left: the next may not write all of it anew."""
    for path in (
        run / START,
        *half_written(run),
        *(run / SNAPSHOTS).glob("step-*"),
        *(run / SNAPSHOTS).glob(".step-*"),
    ):
        path.unlink(missing_ok=True)
    for path in (run / CHECKPOINTS).glob(".*"):
        path.unlink()


def begun_by_this_launch(run: Path) -> bool:
    """Whether the `torchrun` of this process made the directory: then it holds no other run."""
    here = distributed.launch()
    return here is not None and (run / CONFIG).exists() and read_config(run).get("launch") == here
