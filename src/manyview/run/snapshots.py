"""Snapshots: the encoder and its head at evenly spaced steps of a run, for curves."""

from collections.abc import Container, Iterator
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from manyview.atomic import replacing
from manyview.encoders import Encoder, build_encoder
from manyview.encoders.files import plain
from manyview.errors import UserError
from manyview.run.files import SNAPSHOTS
from manyview.run.saved import saved_config


def due(steps: int, count: int) -> set[int]:
    """The steps with a snapshot: `count` evenly spaced ones, and 0."""
    return {round(number * steps / count) for number in range(count + 1)} if count else set()


def save(run: Path, step: int, encoder: Encoder) -> None:
    with replacing(run / SNAPSHOTS / f"step-{step:08d}.safetensors") as file:
        file.write(safetensors.torch.save(plain(encoder.state_dict())))


def steps_of(run: Path) -> list[int]:
    """The steps with a snapshot, ascending."""
    return [_step(path) for path in _kept(run)]


def encoders_of(run: Path, steps: Container[int] | None = None) -> Iterator[tuple[int, Encoder]]:
    """(step, encoder in eval mode) from first to last, of all snapshots or of those after `steps`."""
    for path in _kept(run):
        if steps is None or _step(path) in steps:
            yield _step(path), _load(run, path)


def _kept(run: Path) -> list[Path]:
    found = sorted((run / SNAPSHOTS).glob("step-*.safetensors"))
    if not found:
        raise UserError(f"{run} has no {SNAPSHOTS}: start the run with --snapshots 10")
    return found


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _load(run: Path, path: Path) -> Encoder:
    method, config = saved_config(run)
    settings = method.encoder_config(config.method, config.encoder)
    encoder = build_encoder(settings, image_size=config.views.image_size, in_channels=config.data.channels)
    try:
        encoder.load_state_dict(safetensors.torch.load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"snapshot {path} cannot be read ({reason}): remove it") from error
    return encoder.eval()
