"""Training and test samples of an evaluation, and how they are described to the user."""

from pathlib import Path
from typing import NamedTuple

import torch

from manyview.data import open_source
from manyview.data.fieldfiles import KINECT_MM, Camera
from manyview.data.source import NoTestSplit, Source, Subset, holdout
from manyview.errors import UserError, naming
from manyview.run.files import CONFIG, read_config

HELD_OUT = 0.2


class Split(NamedTuple):
    """Two labelled sources with the same numbering of the classes."""

    train: Source
    test: Source
    words: str
    """Where the test samples come from, as shown to the user."""


def unlabelled(data: str, test_data: str | None = None, *, camera: Camera = KINECT_MM) -> Split:
    """For protocols that need no labels: `test_data`, else the test split of `data`, else all of `data`."""
    with naming("--data" if test_data is None else "--test-data"):
        test = open_test(data if test_data is None else test_data, labelled=False, camera=camera)
    return Split(test, test, test.name)


def splits(data: str, test_data: str | None = None, *, camera: Camera = KINECT_MM) -> Split:
    """Tests on `test_data`, else on the test split of `data`, else on a part of `data` that is held out by hash."""
    with naming("--data"):
        train = _labelled(open_source(data, camera=camera), f"--data {data}")
    if test_data is not None:
        with naming("--test-data"):
            test = _labelled(open_test(test_data, camera=camera), f"--test-data {test_data}")
        if test.fingerprint == train.fingerprint:
            raise UserError(
                f"--test-data {test_data} holds the same samples as --data {data}: leave it out or give other ones"
            )
        return Split(train, match_classes(test, train.classes), test.name)
    try:
        test = _labelled(open_source(data, split="test", camera=camera), f"--data {data}")
    except NoTestSplit:
        train, test = holdout(train, HELD_OUT)
        return Split(train, test, f"{HELD_OUT:.0%} held out by hash".replace("%", " %"))
    return Split(train, match_classes(test, train.classes), f"{test.name} (test split)")


def camera_of(
    run: str | Path,
    depth_scale: float | None = None,
    intrinsics: str | None = None,
    value_range: tuple[float, float] | None = None,
) -> Camera:
    """That of a run directory, unless something else is said: depth and brightness mean to an encoder what they meant
    in training. Of other weights what is said, and Kinect's."""
    run = Path(run).expanduser()
    try:
        facts = read_config(run) if (run / CONFIG).exists() else {}
        # The folders of timm have a config.json, too.
        data = facts["config"]["data"] if facts and "architecture" not in facts else {}
        scale, numbers = data.get("depth_scale", KINECT_MM.depth_scale), data.get("intrinsics")
        values = data.get("value_range") if value_range is None else value_range
        return Camera(
            scale if depth_scale is None else depth_scale,
            numbers if intrinsics is None else intrinsics,
            data.get("channels", KINECT_MM.channels),
            None if values is None else (float(values[0]), float(values[1])),
        )
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise UserError(f"{run / CONFIG} does not say how depth was measured: restore it from a backup") from error


def match_classes(test: Source, classes: tuple[str, ...]) -> Source:
    """`test` with its labels renumbered, by class name, to be positions in `classes`."""
    if test.labels is None:
        raise ValueError(f"{test.name} has no labels")
    if test.classes == classes:
        return test
    unknown = [name for name in test.classes if name not in classes]
    if unknown:
        raise UserError(
            f"--test-data has classes that --data has not: {', '.join(unknown)}; "
            "classes are matched by name, so give both sets the same directory names"
        )
    numbers = torch.tensor([classes.index(name) for name in test.classes])
    renumbered = Subset(test, torch.arange(len(test)))
    renumbered.labels, renumbered.classes = numbers[test.labels], classes
    return renumbered


def open_test(data: str, *, labelled: bool = True, camera: Camera = KINECT_MM) -> Source:
    """The test split of a set that has one, and all samples of a set that has none."""
    try:
        return open_source(data, split="test", labelled=labelled, camera=camera)
    except NoTestSplit:
        return open_source(data, labelled=labelled, camera=camera)


def _labelled(source: Source, flag: str) -> Source:
    if source.labels is None:
        raise UserError(
            f"{flag} has no labels to evaluate with: they come from the first directory level (CLASS/image.jpg), or "
            "from the column label of parquet files; or take `manyview evaluate recognise`, which needs none"
        )
    return source
