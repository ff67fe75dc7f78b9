"""Checkpoints: one state dict with everything that the next step reads."""

import os
from pathlib import Path
from typing import Any

import torch

from manyview.atomic import replacing
from manyview.errors import UserError
from manyview.run.files import kept


def save(directory: Path, step: int, state: dict[str, Any], *, keep: int) -> Path:
    """Writes the file of this step, points `latest.pt` at it, and only then removes all but the newest `keep`."""
    path = directory / f"step-{step:08d}.pt"
    try:
        with replacing(path) as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:  # torch hides what the disk said behind an error of its own
        reason = error if isinstance(error, OSError) else error.__context__
        if not isinstance(reason, OSError):
            raise
        run = directory.parent
        then = f"continue with `manyview resume {run}`" if kept(directory) else "start again"
        raise UserError(f"{path} cannot be written ({reason.strerror}): make room, then {then}") from error
    link = directory / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
    os.replace(link, directory / "latest.pt")
    for old in kept(directory)[:-keep]:
        if old != path:
            old.unlink()
    return path


def latest(directory: Path) -> Path:
    """The newest checkpoint. `latest.pt` is the same file under a fixed name, for scripts."""
    paths = kept(directory)
    if not paths:
        run = directory.parent
        raise UserError(f"{run} has no checkpoint yet: give its `manyview pretrain` again, which begins it anew")
    return paths[-1]


def load(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file; the user needs its name
        # Its first sentence: the others guess at how that came about.
        reason = str(error).splitlines()[0].split(". ")[0] if str(error) else type(error).__name__
        raise UserError(
            f"checkpoint {path} cannot be read ({reason}): remove it and resume from an older one"
        ) from error
    return state
