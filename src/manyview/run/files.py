"""The directory of a run: what its files are called, and the one that says what run it is."""

import json
from pathlib import Path
from typing import Any

from manyview.errors import UserError

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "ENCODER",
    "EVALUATIONS",
    "METRICS",
    "PAGE",
    "RENAMED",
    "SNAPSHOTS",
    "TENSORBOARD",
    "UNREADABLE",
    "read_config",
]

CONFIG = "config.json"  # method, flags, data and machine; written first
METRICS = "metrics.jsonl"  # a line for each step that is logged
UNREADABLE = "unreadable.txt"  # images that were left out, with reasons
CHECKPOINTS = "checkpoints"  # a directory
SNAPSHOTS = "snapshots"  # another, of encoders on the way
TENSORBOARD = "tensorboard"  # a third
ENCODER = "encoder.safetensors"  # written when all steps are done
EVALUATIONS = "evaluations.json"
PAGE = "report.html"

# Settings that had another name in 0.1.0, whose runs can be resumed.
RENAMED = {f"watch_{name}": f"contrast_{name}" for name in ("every", "data", "t_neg")}


def read_config(run: Path) -> dict[str, Any]:
    """What config.json holds, by name; nothing is known of the values, as the file may have been edited."""
    path = run / CONFIG
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{run} is not a run directory (it holds no {CONFIG}): give the --out of a `manyview pretrain`"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from a backup") from error
    if not isinstance(facts, dict):
        raise UserError(f"{path} is not the {CONFIG} of a run: give the --out of a `manyview pretrain`")
    return facts
