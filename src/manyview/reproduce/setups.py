"""Set-ups: what a recipe runs once for each seed, as data."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from manyview.reproduce.job import Job, Look, Row, Training
from manyview.reproduce.setting import Setting

Flags = dict[str, Any]
"""Of `manyview pretrain`, as {"batch_size": 256}; None leaves one out."""

QUICK_STEPS = 4
# Seconds for one view of 32 px with `tiny` on two quiet cores: with a gradient, and as a key without one. From runs of
# moco-v2 (580 images/s) and of jcl with five keys (285 images/s).
WITH_GRADIENT, AS_KEY = 1.28e-3, 0.45e-3
EVALUATIONS = 45.0  # of one run, kNN and linear, on 60,000 images
# The contrast is measured in the last step at any rate, which is enough for the diagnosis.
OF_ALL: Flags = {"contrast_every": 10_000, "keep": 1}


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class SetUp(ABC):
    """A line of the recipe's table. `columns` tell its rows from those of others."""

    columns: Mapping[str, object]
    paper: float | None = None  # its number

    @abstractmethod
    def job(self, seed: int) -> Job: ...

    def keys(self, **more: object) -> Row:
        return {name: str(value) for name, value in {**self.columns, **more}.items()}


@dataclass(frozen=True)
class Length:
    """Of a run: optimizer steps, or epochs at the paper's scale."""

    count: int
    epochs: bool = False

    def part(self, share: float) -> "Length":
        return replace(self, count=max(1, round(share * self.count)))


def length(setting: Setting, *, steps: int, epochs: int) -> Length:
    """`steps` on a laptop, the paper's `epochs` at its scale, or what the user asks for."""
    asked = setting.steps or (QUICK_STEPS if setting.quick else None)
    if asked is None and setting.scale == "paper":
        return Length(epochs, epochs=True)
    return Length(asked or steps)


@dataclass(frozen=True, kw_only=True)
class Pretraining(SetUp):
    method: str
    flags: Flags
    lasts: Length
    looks: tuple[Look, ...]
    samples: int  # of a step, as its time is expected
    trained: int = 1  # views of each that get a gradient
    encoded: int = 0  # views that get none, where `flags` do not say how many keys there are
    looking: float = 0.0  # seconds of the looks beyond the usual
    table: str = ""
    waits_for: str = ""

    def job(self, seed: int) -> Training:
        epochs, count = self.lasts.epochs, self.lasts.count
        flags = {**self.flags, **OF_ALL, "seed": seed, "epochs" if epochs else "max_steps": count}
        # Sorted, so that set-ups of two recipes that come to the same run share it.
        words = (word for name in sorted(flags) if flags[name] is not None for word in (flag(name), str(flags[name])))
        views = self.trained * WITH_GRADIENT + self.flags.get("keys", self.encoded) * AS_KEY
        return Training(
            self.keys(seed=seed, steps=f"{count} epochs" if epochs else count),
            table=self.table,
            waits_for=self.waits_for,
            words=(self.method, *words),
            looks=self.looks,
            seconds=count * self.samples * views + EVALUATIONS + self.looking,
        )
