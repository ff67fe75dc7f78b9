"""Plain networks as in CMC's tables, layer by layer: AlexNet, one half of it, and the encoder for NYU Depth-V2."""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from manyview.errors import UserError


class Convolution(NamedTuple):
    """A row of a table: C, K, S, P; and the row of its max pooling, of stride 2, where one follows."""

    channels: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    pool: int | None = None
    """Kernel of the pooling."""


class Table(NamedTuple):
    """One network: its convolutions, the widths of fc6 and fc7, and the image sizes that it makes sense for."""

    convolutions: tuple[Convolution, ...]
    fc6: int
    fc7: int
    image_size: int
    smallest: int
    largest: int
    ends_linear: bool = False
    """fc7 is the last layer of the network: what it gives is neither normalised nor rectified."""


# CMC's Table 10 shows one half of the network for small images, Table 11 one half of AlexNet: a half for each view.
HALF_SMALL = Table(
    (Convolution(48, pool=3), Convolution(96, pool=3), Convolution(192), Convolution(192), Convolution(96, pool=3)),
    *(2048, 2048),
    image_size=64,
    smallest=16,
    largest=96,
)
HALF = Table(
    (
        Convolution(48, kernel=11, stride=4, padding=2, pool=3),
        Convolution(128, kernel=5, padding=2, pool=3),
        Convolution(192),
        Convolution(192),
        Convolution(128, pool=3),
    ),
    *(2048, 2048),
    image_size=224,
    smallest=64,
    largest=256,
)
# Table 12, which has no fc8: its fc7 is what is compared.
NYU = Table(
    (
        Convolution(64, kernel=8, stride=2, padding=3, pool=2),
        Convolution(128, kernel=4, stride=2),
        Convolution(256, kernel=4, stride=2),
        Convolution(256),
        Convolution(512, kernel=4, stride=2),
    ),
    *(512, 256),
    image_size=128,
    smallest=32,
    largest=256,
    ends_linear=True,
)


def _twice(half: Table, image_size: int) -> Table:
    """Both halves together: one encoder for the whole image."""
    convolutions = tuple(row._replace(channels=2 * row.channels) for row in half.convolutions)
    return half._replace(convolutions=convolutions, fc6=2 * half.fc6, fc7=2 * half.fc7, image_size=image_size)


PLAIN = {
    # CACR, C.1, takes the network of CMC and of Wang & Isola for CIFAR's 32 px.
    "alexnet-small": _twice(HALF_SMALL, image_size=32),
    "alexnet-half-small": HALF_SMALL,
    "alexnet-half": HALF,
    "nyu": NYU,
}


class Plain(nn.Module):
    """conv1 … conv5, pool1 … where the table has them, fc6 and fc7, whose outputs are the features (N, F).

    Every layer has a batch normalisation, as CMC says of AlexNet (D.2) and leaves open elsewhere, and a ReLU. fc6
    covers the whole grid, which is 7×7 for the 64 px of Table 10 and 3×3 for CIFAR's 32 px. fc8 is the `linear` head.
    Maps of other sizes, such as those of patches of an image, are brought to this grid.
    """

    def __init__(self, name: str, table: Table, image_size: int, in_channels: int) -> None:
        super().__init__()
        if not table.smallest <= image_size <= table.largest:
            raise UserError(
                f"--backbone {name} takes images of {table.smallest} to {table.largest} px, "
                f"not --image-size {image_size}: take a ResNet"
            )
        self.name, self.smallest, self.num_features = name, table.smallest, table.fc7
        channels, grid = in_channels, image_size
        for number, row in enumerate(table.convolutions, 1):
            self.add_module(f"conv{number}", _convolution(channels, row))
            channels, grid = row.channels, (grid + 2 * row.padding - row.kernel) // row.stride + 1
            if row.pool is not None:
                self.add_module(f"pool{number}", nn.MaxPool2d(row.pool, stride=2))
                grid = (grid - row.pool) // 2 + 1
        self.grid = grid
        self.fc6 = _fully_connected(channels * grid**2, table.fc6)
        self.fc7 = nn.Linear(table.fc6, table.fc7) if table.ends_linear else _fully_connected(table.fc6, table.fc7)

    def forward(self, x: Tensor) -> Tensor:
        side = min(x.shape[-2:])
        if side < self.smallest:
            raise UserError(
                f"--backbone {self.name} takes images and patches of {self.smallest} px or more, not {side}: use a "
                "larger --image-size, or a ResNet"
            )
        for name, layer in self.named_children():
            if name == "fc6":
                if x.shape[-2:] != (self.grid, self.grid):
                    x = F.adaptive_avg_pool2d(x, self.grid)
                x = x.flatten(1)
            x = layer(x)
        return x


def build_plain(name: str, image_size: int | None, in_channels: int) -> Plain:
    """A network of `PLAIN`; without an `image_size` for that of its table."""
    table = PLAIN[name]
    return Plain(name, table, image_size or table.image_size, in_channels)


def _convolution(inputs: int, row: Convolution) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, row.channels, row.kernel, row.stride, row.padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(row.channels), nn.ReLU(inplace=True))


def _fully_connected(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True))
