"""The sets of the papers, by name, where they already lie on disk: nothing is downloaded here."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from manyview.data.fieldfiles import KINECT_MM, Camera
from manyview.data.folder import Folder
from manyview.data.source import Arrays, Source, digest
from manyview.errors import UserError
from manyview.fields import IMAGE

KNOWN = ("cifar10", "cifar100", "stl10", "imagenet", "imagenet100")
_TORCHVISION = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "stl10": "STL10"}
_STL10_SPLITS = {"train": "train", "test": "test", "pretrain": "train+unlabeled"}


class TorchvisionSet(Arrays):
    """CIFAR-10, CIFAR-100 or STL-10 in memory. torchvision compares the files' MD5 with the published ones before it
    unpickles anything."""

    def __init__(self, name: str, root: Path, *, split: str, labelled: bool) -> None:
        import torchvision.datasets

        kind = getattr(torchvision.datasets, _TORCHVISION[name])
        choice = {"split": _STL10_SPLITS[split]} if name == "stl10" else {"train": split != "test"}
        try:
            with Console(stderr=True).status(f"checking and reading {name}"):
                data = kind(root, **choice)
        except (RuntimeError, FileNotFoundError) as error:
            raise UserError(
                f"{name} is not whole in '{root}': fetch it with "
                f"python -c \"from torchvision.datasets import *; {kind.__name__}('{root}', download=True)\""
            ) from error
        labels = np.asarray(data.labels if name == "stl10" else data.targets)
        self.name = name
        pixels = data.data if data.data.shape[1] == 3 else data.data.transpose(0, 3, 1, 2)
        images = torch.from_numpy(np.ascontiguousarray(pixels))
        self.arrays = {IMAGE: images}
        self.size = (images.shape[2], images.shape[3])
        if labelled and labels.min() >= 0:  # STL-10's unlabelled images are marked -1
            self.labels = torch.from_numpy(labels.astype(np.int64))
            self.classes = tuple(data.classes)
        self.fingerprint = digest(name.encode(), split.encode(), str(len(images)).encode())


def imagenet100_classes() -> tuple[str, ...]:
    """The 100 classes of CMC, Table 6."""
    return tuple((files("manyview.data") / "imagenet100.txt").read_text().split())


def _imagenet(name: str, root: Path, *, split: str, labelled: bool, camera: Camera) -> Folder:
    train, val = root / "train", root / "val"
    tree = val if split == "test" else train
    for needed in (train, tree):
        if not needed.is_dir():
            raise UserError(f"{name} needs the directory '{needed}', with one directory of images per class: make it")
    if name == "imagenet100":
        return Folder(tree, name=name, labelled=labelled, classes=imagenet100_classes(), camera=camera)
    # The training tree numbers the classes, so that a gap in the other one does not shift its labels.
    classes = [entry.name for entry in train.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    return Folder(tree, name=name, labelled=labelled, classes=classes, camera=camera)


def open_known(name: str, root: str, *, split: str, labelled: bool, camera: Camera = KINECT_MM) -> Source:
    """One of `KNOWN`, from the directory that holds it; `split` is "train", "test" or "pretrain"."""
    directory = Path(root).expanduser()
    if not directory.is_dir():
        raise UserError(f"'{directory}' is not a directory: give the one that holds {name}, as in {name}:DIRECTORY")
    if name in _TORCHVISION:
        return TorchvisionSet(name, directory, split=split, labelled=labelled)
    return _imagenet(name, directory, split=split, labelled=labelled, camera=camera)
