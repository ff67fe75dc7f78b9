"""One encoder for each view: what CMC learns with, and what it leaves."""

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from manyview.encoders.encoder import Encoder, EncoderConfig, build_encoder
from manyview.encoders.layers import layer_features

__all__ = ["Towers"]


class Towers(nn.Module):
    """Encoders of one shape, with weights of their own, for views with so many `channels`: {"L": 1, "ab": 2}.

    A batch maps the names of views to images (N, c, h, w), each view once. Where some views are missing, `forward` and
    `parts` give what there is. In training one call of the module encodes all views, so that each gradient of several
    ranks is averaged once, and none is waited for in vain.
    """

    def __init__(self, channels: Mapping[str, int], config: EncoderConfig, *, image_size: int | None = None) -> None:
        super().__init__()
        if not channels:
            raise ValueError("towers need at least one view")
        self.config, self.channels = config, dict(channels)
        self.towers = nn.ModuleDict(
            {view: build_encoder(config, image_size=image_size, in_channels=count) for view, count in channels.items()}
        )
        self.dim = config.dim  # D
        self.num_features = sum(self[view].num_features for view in channels)  # F

    def __getitem__(self, view: str) -> Encoder:
        return cast(Encoder, self.towers[view])

    def forward(self, views: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Unit embeddings (N, D) of each view that is there, in at least float32."""
        return {view: self[view](images) for view, images in self._ordered(views)}

    def parts(self, views: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Features of each view that is there, in at least float32."""
        return {view: self[view].features(images) for view, images in self._ordered(views)}

    def features(self, views: Mapping[str, Tensor]) -> Tensor:
        """Features (N, F) of the sample: those of its views one after another."""
        self._complete(views)
        return torch.cat(list(self.parts(views).values()), 1)

    def layers(self, views: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
        """Outputs of the named layers, those of the views one after another along the channels (CMC, §4.1)."""
        self._complete(views)
        names = list(names)
        found = [layer_features(self[view].backbone, images, names) for view, images in self._ordered(views)]
        return {name: torch.cat([layers[name] for layers in found], 1) for name in names}

    def _ordered(self, views: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        """In the order of the towers, whatever that of the batch."""
        unknown = [view for view in views if view not in self.channels]
        if unknown or not views:
            raise ValueError(f"views {list(views)} are not some of {list(self.channels)}")
        return [(view, views[view]) for view in self.channels if view in views]

    def _complete(self, views: Mapping[str, Tensor]) -> None:
        missing = [view for view in self.channels if view not in views]
        if missing:
            raise ValueError(f"the views {missing} are missing: take `parts`, which needs only some")
