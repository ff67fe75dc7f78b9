"""Samples that lack some of their fields, as sets from several sensors do."""

import torch
from torch import Tensor

from manyview import counter
from manyview.data.source import Source, Subset, digest
from manyview.errors import UserError
from manyview.fields import IMAGE

_TAG = 0x6D697373696E67  # "missing": keeps these draws apart from everybody else's


class Incomplete(Subset):
    """A source of whose fields beside the image a share is withheld, each by chance: 0, and not `present`."""

    present: dict[str, Tensor]

    def __init__(self, source: Source, share: float, *, seed: int) -> None:
        fields = [name for name in source.selected if name != IMAGE]
        if not fields:
            raise UserError(f"--missing {share:g} concerns views beyond colours: name some, as in --views lab,depth")
        super().__init__(source, torch.arange(len(source)))
        self.present = {
            name: counter.uniform(seed, _TAG, number, self.indices) >= share for number, name in enumerate(fields)
        }
        for name, there in (source.present or {}).items():
            self.present[name] = self.present[name] & there if name in self.present else there
        self.fingerprint = digest(source.fingerprint.encode(), f"missing {share} {seed}".encode())

    def read(self, index: int) -> dict[str, Tensor]:
        sample = self.source.read(index)
        absent = [name for name in sample if name in self.present and not self.present[name][index]]
        return sample | {name: torch.zeros_like(sample[name]) for name in absent}

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        fields = self.source.batch(index)
        for name in fields.keys() & self.present.keys():
            there = self.present[name][index].view(-1, 1, 1, 1)
            fields[name] = torch.where(there, fields[name], torch.zeros_like(fields[name]))
        return fields
