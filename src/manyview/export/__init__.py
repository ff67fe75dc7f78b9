"""Encoders in the formats of other programs, and the line with which each of them loads it."""

from manyview.export.write import Exported, export

__all__ = ["Exported", "export"]
