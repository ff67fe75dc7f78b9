"""Which images CMC's Fig. 5 measures the mutual information of views on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.data import Source
from manyview.data.source import Arrays
from manyview.reproduce import cmc
from manyview.reproduce.setting import Setting

CLASSES = 10


class Sorted(Arrays):
    """Class by class, as folders and tars are; every class has a red of its own."""

    def __init__(self) -> None:
        reds = torch.arange(CLASSES).repeat_interleave(100).byte() * 20
        self.images = torch.zeros(len(reds), 3, 8, 8, dtype=torch.uint8)
        self.images[:, 0] = reds.view(-1, 1, 1)
        self.arrays = {"image": self.images}
        self.size: Any = (8, 8)
        self.name = "sorted"


class OfManySizes(Sorted):
    def __init__(self) -> None:
        super().__init__()
        self.size = None

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        raise TypeError("images differ in size")


@pytest.mark.parametrize("source", [Sorted(), OfManySizes()])
def test_images_of_all_classes_are_measured(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def estimate(one: Tensor, other: Tensor, **_: object) -> float:
        seen.append(one)
        return 0.5

    monkeypatch.setattr(cmc, "open_source", lambda _: source)
    monkeypatch.setattr(cmc, "estimate_mutual_information", estimate)
    monkeypatch.setattr(cmc, "IMAGES", 200)
    monkeypatch.setattr(cmc, "saved_config", lambda _: (None, SimpleNamespace(run=SimpleNamespace(seed=0))))
    [row] = cmc.SharedInformation("rgb")(Path("run"), Setting("laptop", "somewhere", (0,)))
    assert row == {"information": "0.5000"}
    reds = seen[0].mean((1, 2, 3)).mul(255 / 20).round()
    assert len(reds) == 200
    assert reds.unique().numel() == CLASSES
