"""manyview: image representations learnt by contrasting many views and many positives.

Where to start:

    manyview.load("runs/photos")    the frozen encoder of a run: images in, features out
    manyview.objectives             JCL, CACR, CMC and their rivals as functions of two similarity matrices
    manyview.negatives              where their negatives come from: the batch, a queue, a memory bank
    manyview.encoders               networks, among them `trainable`, which gives that of a run for fine-tuning
    manyview.views, manyview.data   augmentations, and samples from folders, tars and sets by name
    manyview.methods                one small file for each method
    manyview.evaluate               kNN, linear probes and other protocols

`manyview --help` shows the command line. docs/GUIDE.md holds a whole training loop.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyview import data, encoders, evaluate, methods, negatives, objectives, views
    from manyview.encoders import load

__all__ = [
    "__version__",
    "data",
    "encoders",
    "evaluate",
    "load",
    "methods",
    "negatives",
    "objectives",
    "views",
]

__version__ = version("manyview")


def __getattr__(name: str) -> Any:
    """What is public, on first use: whoever wants only `manyview.objectives` should not wait for timm."""
    if name == "load":
        return import_module("manyview.encoders").load
    if name in __all__:
        return import_module(f"manyview.{name}")
    raise AttributeError(f"module 'manyview' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
