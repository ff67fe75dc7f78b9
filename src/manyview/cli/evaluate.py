"""`manyview evaluate`: evaluate a frozen encoder by a protocol."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from manyview.arguments import Called, Positional, asked_for_help
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, first_word, listed, names, parsed, use_threads
from manyview.evaluate import described, find
from manyview.run.files import PAGE, START

if TYPE_CHECKING:
    from manyview.evaluate.protocol import Protocol


P = TypeVar("P", bound="Protocol")


@dataclass(frozen=True)
class Args(Generic[P]):
    """What is evaluated, on which data."""

    run: Annotated[str, Positional]
    """Run directory, finished or not; encoder file; timm:NAME; or a file of weights of another program."""
    data: str
    """Labelled training samples: anything that `pretrain --data` takes. For `recognise` any images."""
    protocol: P
    test_data: str | None = None
    """Labelled test samples. The default is the data's own test split, or 20 % of --data, held out by hash."""
    view: str | None = None
    """Only these views of an encoder with a network per view, such as L or L,depth."""
    depth_scale: Annotated[float | None, Positive] = None
    """Metres per unit of depth files. Default: that of the run; of an encoder file 0.001, for millimetres."""
    intrinsics: str | None = None
    """Camera intrinsics fx,fy,cx,cy, for normals computed from depth. Default: those of the run; of an encoder file
    Kinect's."""
    value_range: tuple[float, float] | None = None
    """LOW HIGH: the values of image files that are black and white. Default: those of the run."""
    baselines: Annotated[bool, Called(("--random",))] = True
    """Evaluate the same network with random weights, raw pixels, and what the run started from (--init) too. Only
    `linear-sgd` and `linear-adam` do not, as it would take as long again: ask for them with --against."""
    against: tuple[str, ...] = ()
    """Evaluate these weights too: runs, files, timm:NAME, or the words random, pixels, start."""
    images_per_pass: Annotated[int, Positive] = 256
    """Images per forward pass of the encoder."""
    workers: Annotated[int | Literal["auto"], NotNegative] = "auto"
    """Processes that read and decode. `auto`: 0 for packed sets, else one per processor."""
    device: str = "auto"
    """cpu, cuda, …"""
    threads: Annotated[int | None, Positive] = None
    """Threads that compute. Default: one per core."""


@dataclass(frozen=True)
class LayerArgs(Args[P]):
    """For protocols that can evaluate layers."""

    layer: str | None = None
    """Evaluate these layers of the backbone, such as conv1,conv3,fc7 or layer2,layer4. Default: its features."""


@dataclass(frozen=True)
class PassArgs(Args[P]):
    """For protocols without a --batch-size of their own, which makes that name free for the forward passes."""

    images_per_pass: Annotated[int, Positive, Called(("--batch-size",))] = 256
    """Images per forward pass of the encoder."""


@dataclass(frozen=True)
class LayerPassArgs(LayerArgs[P], PassArgs[P]):
    """Both."""


def run(words: list[str]) -> None:
    if asked_for_help(words[:1]):
        lines = {name: " ".join(line.split()) for name, line in described().items()}
        listed("protocol", lines, "manyview evaluate PROTOCOL RUN --data DATA")
        return
    protocol = find(first_word("evaluate", "protocol", words))
    batches = any(field.name == "batch_size" for field in fields(protocol))
    by_layer, plain = (LayerArgs, Args) if batches else (LayerPassArgs, PassArgs)
    kind: Any = by_layer if protocol.takes_layers else plain
    args: Args[Protocol] = parsed(kind[protocol], words[1:], command=f"evaluate {words[0]}", about=protocol.title)
    from manyview.evaluate.run import evaluate, table
    from manyview.evaluate.split import camera_of
    from manyview.run.device import pick_device

    use_threads(args.threads)
    records = evaluate(
        args.run,
        args.protocol,
        args.data,
        args.test_data,
        layers=names(args.layer) if isinstance(args, LayerArgs) else (),
        views=names(args.view),
        random=False,
        against=[*(baselines(args) if args.baselines and args.protocol.cheap else ()), *args.against],
        batch_size=args.images_per_pass,
        workers=args.workers,
        device=pick_device(args.device),
        camera=camera_of(Path(args.run).expanduser(), args.depth_scale, args.intrinsics, args.value_range),
    )
    console.print(table(records))
    if (Path(args.run).expanduser() / PAGE).is_file():
        console.print(f"`manyview report {args.run}` writes it on the page of the run", soft_wrap=True)


def baselines(args: Args["Protocol"]) -> list[str]:
    """What the encoder has to beat. Pixels have no layers."""
    start = (Path(args.run).expanduser() / START).is_file()
    layers = isinstance(args, LayerArgs) and args.layer is not None
    return ["random", *["pixels"] * (not layers), *["start"] * start]
