"""manyview: image representations learnt by contrasting many views and many positives."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyview.encoders import load

__all__ = ["__version__", "load"]

__version__ = version("manyview")


def __getattr__(name: str) -> Any:
    """`manyview.load` on first use: whoever wants only `manyview.objectives` should not wait for timm."""
    if name == "load":
        from manyview.encoders import load

        return load
    raise AttributeError(f"module 'manyview' has no attribute {name!r}")
