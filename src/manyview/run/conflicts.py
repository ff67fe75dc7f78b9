"""What is wrong with the flags of a run together, as far as it is known before the data is opened."""

from collections.abc import Callable, Collection

import torch

from manyview.config import AnyConfig
from manyview.data import Camera, absent
from manyview.data.scenes import Scenes
from manyview.encoders import build_encoder
from manyview.encoders.weights import TIMM
from manyview.errors import UserError, complaints
from manyview.methods.base import Method
from manyview.run import presets
from manyview.run.adaptation import given_weights
from manyview.run.build import build_augment
from manyview.run.device import pick_device
from manyview.run.duration import seconds
from manyview.run.loggers import check_loggers
from manyview.run.monitors import contrast_samples


def conflicts(
    method: type[Method],
    config: AnyConfig,
    given: Collection[str],
    opening: Callable[[], object],
) -> list[str]:
    """What is wrong with the flags together, and with the places and networks that they name. Defaults depend on the
    data, so that only what is `given` counts."""
    run, data, init = config.run, config.data, config.encoder.init

    def time() -> None:
        if run.time is not None:
            seconds(run.time)
            if steps := sorted({"epochs", "max_steps"}.intersection(given)):
                flag = steps[0].replace("_", "-")
                raise UserError(f"--time {run.time} and --{flag} both say how long to train: leave one out")

    def network() -> None:
        side = config.views.image_size if "image_size" in given else None
        with torch.device("meta"):
            encoder = method.encoder_config(config.method, config.encoder)
            build_encoder(encoder, image_size=side, in_channels=data.channels)

    checks: list[Callable[[], object]] = [
        time,
        lambda: pick_device(run.device),
        lambda: check_loggers(run.log_to),
        lambda: presets.at_equal_cost(method, config),
        lambda: Camera.of(data),
        lambda: build_augment(method, config),
        lambda: "data" in given and absent(data.data) and opening(),
        lambda: init not in (None, TIMM) and absent(init) and given_weights(config, given, ""),
        lambda: run.contrast_data is not None and absent(run.contrast_data) and contrast_samples(config, Scenes(1)),
    ]
    return complaints(*checks, *([network] if "backbone" in given else []))
