"""The data of what is measured during training: kNN accuracy and contrast."""

from manyview.config import AnyConfig
from manyview.data import Camera, Source, open_source
from manyview.diagnose.monitor import ContrastMonitor
from manyview.errors import UserError, naming
from manyview.evaluate.split import open_test, splits
from manyview.views import Augment


def knn_sources(config: AnyConfig, source: Source) -> tuple[Source, Source] | None:
    """Training and test samples."""
    if not config.run.knn_every:
        return None
    if source.labels is None:
        raise UserError(
            f"--knn-every {config.run.knn_every} needs labels, but --data {config.data.data} has none: use 0"
        )
    train_set, test_set, _ = splits(config.data.data, camera=Camera.of(config.data))
    return train_set, test_set


def contrast_monitor(config: AnyConfig, source: Source, augment: Augment) -> ContrastMonitor | None:
    if not config.run.contrast_every:
        return None
    samples, name = contrast_samples(config, source)
    return ContrastMonitor(samples, augment, name=name, t_neg=config.run.contrast_t_neg, workers=config.data.workers)


def contrast_samples(config: AnyConfig, source: Source) -> tuple[Source, str]:
    """Test images if there are any, else training images; and how they are called."""
    data, chosen = config.data, config.run.contrast_data
    if chosen is not None:
        with naming("--contrast-data"):
            test = open_test(chosen, camera=Camera.of(data))
        return test, f"{test.name} (--contrast-data)"
    try:
        test = open_source(data.data, split="test", labelled=not data.unlabelled, camera=Camera.of(data))
    except UserError:  # also if the files of the test split are missing: training needs only the others
        return source, f"{source.name} (training data)"
    return test, f"{test.name} (test split)"
