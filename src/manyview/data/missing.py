"""Samples that lack some of their further images, as sets from several sensors do."""

import torch
from torch import Tensor

from manyview import counter
from manyview.data.source import Source, Subset, digest
from manyview.errors import UserError
from manyview.stack import COLOURS, PLANES

__all__ = ["Incomplete"]

_TAG = 0x6D697373696E67  # "missing": keeps these draws apart from everybody else's


class Incomplete(Subset):
    """A source of whose further images a share is withheld, each by chance: black, and not `present`."""

    present: dict[str, Tensor]

    def __init__(self, source: Source, share: float, *, seed: int) -> None:
        if not 0 <= share < 1:
            raise UserError(f"--missing {share:g} is no share: use a number from 0 to less than 1")
        if not source.planes:
            raise UserError(f"--missing {share:g} concerns views beyond colours: name some, as in --views lab,depth")
        super().__init__(source, torch.arange(len(source)))
        self.present = {
            name: counter.uniform(seed, _TAG, number, self.indices) >= share
            for number, name in enumerate(source.planes)
        }
        self.fingerprint = digest(source.fingerprint.encode(), f"missing {share} {seed}".encode())

    def read(self, index: int) -> Tensor:
        return self._blackened(self.source.read(index)[None], torch.tensor([index]))[0]

    def batch(self, index: Tensor) -> Tensor:
        return self._blackened(self.source.batch(index), index)

    def _blackened(self, samples: Tensor, index: Tensor) -> Tensor:
        samples, first = samples.clone(), COLOURS
        for name, there in self.present.items():
            samples[~there[index], first : first + PLANES[name]] = 0
            first += PLANES[name]
        return samples
