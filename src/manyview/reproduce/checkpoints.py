"""The encoder of a run, with its head, as it was at each of the checkpoints that were kept."""

from collections.abc import Container, Iterator
from pathlib import Path

from manyview import checkpoint
from manyview.config import AnyConfig
from manyview.encoders import Encoder, build_encoder
from manyview.flags import saved_config
from manyview.methods import Method
from manyview.run_files import CHECKPOINTS

__all__ = ["encoders_of", "last_encoder", "steps_of"]


def steps_of(run: Path) -> list[int]:
    """Of its checkpoints, ascending."""
    return [_step(path) for path in checkpoint.kept(run / CHECKPOINTS)]


def encoders_of(run: Path, steps: Container[int] | None = None) -> Iterator[tuple[int, Encoder]]:
    """(steps taken, encoder in eval mode), from the first to the last; only these `steps`, where some are named."""
    method, config = saved_config(run)
    for path in checkpoint.kept(run / CHECKPOINTS):
        if steps is None or _step(path) in steps:
            yield _encoder(path, method, config)


def last_encoder(run: Path) -> Encoder:
    return _encoder(checkpoint.latest(run / CHECKPOINTS), *saved_config(run))[1]


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _encoder(path: Path, method: type[Method], config: AnyConfig) -> tuple[int, Encoder]:
    state = checkpoint.load(path)
    kind = method.encoder_config(config.method, config.encoder)
    encoder = build_encoder(kind, image_size=config.views.image_size)
    own = {name.removeprefix("encoder."): each for name, each in state["method"].items() if name.startswith("encoder.")}
    encoder.load_state_dict(own)
    return int(state["step"]), encoder.eval()
