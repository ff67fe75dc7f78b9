"""`manyview evaluate`: evaluate a frozen encoder by a protocol."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from manyview import bounds
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, listed, names
from manyview.errors import UserError
from manyview.evaluate import PROTOCOLS, LinearSgd, Mlp, Protocol, evaluate, table
from manyview.run.build import pick_device

__all__ = ["run"]

P = TypeVar("P", bound=Protocol)


@dataclass(frozen=True)
class Args(Generic[P]):
    """What is evaluated, on which data."""

    run: tyro.conf.Positional[Path]
    """Run directory or encoder file."""
    data: str
    """Labelled training samples: anything that `pretrain --data` takes."""
    protocol: P
    test_data: str | None = None
    """Labelled test samples. The default is the data's own test split, or 20 % of --data, held out by hash."""
    view: str | None = None
    """Only these views of an encoder with a network per view, such as L or L,depth."""
    random: bool = True
    """Evaluate the same network with random weights too."""
    images_per_pass: Annotated[int, Positive] = 256
    """Images per forward pass of the encoder."""
    workers: Annotated[int, NotNegative] = 0
    """Processes that read and decode."""
    device: str = "auto"
    """cpu, cuda, …"""


@dataclass(frozen=True)
class CachedArgs(Args[P]):
    """What is evaluated, on which data, where one pass over the images is enough."""

    layer: str | None = None
    """Layers of the backbone instead of its features, such as conv1,conv3,fc7 or layer2,layer4."""


@dataclass(frozen=True)
class FittedArgs(CachedArgs[P]):
    """What is evaluated, on which data, where nothing is trained in batches."""

    # Where no classifier has batches of its own, the shorter name is free.
    images_per_pass: Annotated[int, Positive, tyro.conf.arg(aliases=("--batch-size",))] = 256
    """Images per forward pass of the encoder."""


def run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        lines = {name: " ".join((protocol.__doc__ or "").split()) for name, protocol in PROTOCOLS.items()}
        listed("protocol", lines, "manyview evaluate PROTOCOL RUN --data DATA")
        return
    if words[0] not in PROTOCOLS:
        raise UserError(f"no protocol {words[0]!r}: choose one of {', '.join(PROTOCOLS)}")
    protocol = PROTOCOLS[words[0]]
    # Layers are those of cached features; where a classifier is trained in steps, --batch-size is that of the steps.
    kind: Any = Args if issubclass(protocol, LinearSgd) else CachedArgs if protocol is Mlp else FittedArgs
    args: Args[Protocol] = tyro.cli(
        kind[protocol],
        prog=f"manyview evaluate {words[0]}",
        description=protocol.title,
        args=words[1:],
        config=(tyro.conf.OmitArgPrefixes,),
    )
    bounds.check(args)
    records = evaluate(
        args.run,
        args.protocol,
        args.data,
        args.test_data,
        layers=names(args.layer) if isinstance(args, CachedArgs) else (),
        views=names(args.view),
        random=args.random,
        batch_size=args.images_per_pass,
        workers=args.workers,
        device=pick_device(args.device),
        progress=console.is_terminal,
    )
    console.print(table(records))
