"""How often a run saves and looks at itself, so that neither takes much of its time."""

from manyview.config import AnyConfig

CHECKPOINTS = 20  # over the run
LOOKED_AT, VIEWS_EACH = 512, 5  # samples of a look at the contrast, at most, and views of each
FORWARD = 1 / 3  # of the time of a view that is trained on, for one that is only looked at
LOOKS = 0.04  # of the time may go into looks of a kind


def length(config: AnyConfig, samples: int) -> tuple[int, int]:
    """Steps of the run, and of an epoch."""
    per_epoch = max(1, samples // config.optim.batch_size)
    return config.optim.max_steps or config.optim.epochs * per_epoch, per_epoch


def saves_every(steps: int) -> int:
    """Steps between two checkpoints."""
    return max(50, min(1000, steps // CHECKPOINTS))


def contrast_every(steps: int, per_epoch: int, views_per_step: int, samples: int) -> int:
    """Epochs between two looks at the contrast."""
    return _every(steps, per_epoch, views_per_step, contrasted(samples))


def contrasted(samples: int) -> int:
    """Views of a look at the contrast."""
    return VIEWS_EACH * min(LOOKED_AT, samples)


def knn_every(steps: int, per_epoch: int, views_per_step: int, samples: int) -> int:
    """Epochs between two measurements of the kNN accuracy, which looks at all samples."""
    return _every(steps, per_epoch, views_per_step, samples)


def _every(steps: int, per_epoch: int, views_per_step: int, looked_at: int) -> int:
    looks = max(1, int(LOOKS * steps * views_per_step / (looked_at * FORWARD)))
    return max(1, -(-steps // (per_epoch * looks)))


def looked_at(config: AnyConfig, steps: int, per_epoch: int, samples: int) -> int:
    """Views that are looked at in a run of so many steps, before its first step included."""
    start = config.encoder.init is not None
    total = 0
    for every, views in ((config.run.contrast_every, contrasted(samples)), (config.run.knn_every, samples)):
        if every:
            total += (-(-steps // (per_epoch * every)) + start) * views
    return total
