"""The files in a run directory."""

import json
from pathlib import Path
from typing import Any, Literal

from manyview.errors import UserError

CONFIG = "config.json"  # method, flags, data and machine; written first
METRICS = "metrics.jsonl"  # one line per step
UNREADABLE = "unreadable.txt"  # images that could not be read, with reasons
CHECKPOINTS = "checkpoints"  # a directory
SNAPSHOTS = "snapshots"  # a directory of encoders during training
TENSORBOARD = "tensorboard"  # a directory
LOGGERS = "loggers.json"  # what W&B and MLflow call the run, so that it goes on there when it is resumed
ENCODER = "encoder.safetensors"  # written after the last step
START = "start.safetensors"  # the encoder before the first step, where the run began from given weights
EVALUATIONS = "evaluations.json"
PAGE = "report.html"

LoggerName = Literal["tensorboard", "wandb", "mlflow"]

# Settings that had another name in 0.1.0, whose runs can be resumed.
RENAMED = {f"watch_{name}": f"contrast_{name}" for name in ("every", "data", "t_neg")}


def read_config(run: Path) -> dict[str, Any]:
    """The content of config.json. Its values are not checked yet, and the file may have been edited."""
    path = run / CONFIG
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{run} is not a run directory (it has no {CONFIG}): give the --out of a `manyview pretrain`"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from a backup") from error
    if not isinstance(facts, dict):
        raise UserError(f"{path} is not the {CONFIG} of a run: give the --out of a `manyview pretrain`")
    return facts


def fingerprint(run: Path, of: str) -> str:
    """That of the images on which the run was trained ("data"), or on which its contrast was measured ("contrast")."""
    facts = read_config(run).get(of)
    found = facts.get("fingerprint") if isinstance(facts, dict) else None
    if not isinstance(found, str):
        raise UserError(f"{run / CONFIG} lacks the fingerprint of its {of}: restore it from a backup")
    return found


def finished(run: Path) -> bool:
    """Whether nothing is left to do: the page is written last. Whoever removes the last checkpoint wants its
    steps again."""
    if not all((run / name).exists() for name in (ENCODER, PAGE, METRICS)):
        return False
    with open(run / METRICS, "rb") as lines:
        steps = sum(1 for _ in lines)
    return all(path.name >= f"step-{steps:08d}.pt" for path in kept(run / CHECKPOINTS)[-1:])


def kept(directory: Path) -> list[Path]:
    """All checkpoints, from the oldest to the newest."""
    return sorted(directory.glob("step-*.pt"))
