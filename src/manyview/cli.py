"""The command line: dataclasses become flags, commands call the library."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import torch
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyview import __version__, counter, distributed
from manyview.allocator import keep_freed_memory
from manyview.data import open_source, pack
from manyview.diagnose import findings
from manyview.encoders import export, load
from manyview.errors import UserError
from manyview.evaluate import PROTOCOLS, LinearSgd, Mlp, Protocol, embed, evaluate, left_out_before, table
from manyview.methods import described, find
from manyview.report.pictures import readable
from manyview.run.build import build_augment, check_values, pick_device
from manyview.run.flags import open_training, parse_run
from manyview.run.pretrain import Stopped, pretrain, report, resume
from manyview.run.saved import saved_config
from manyview.views import gallery

__all__ = ["main"]

P = TypeVar("P", bound=Protocol)
Run = tyro.conf.Positional[Path]
# Where no classifier has batches of its own, the shorter name is free.
ImagesPerPass = Annotated[int, tyro.conf.arg(aliases=("--batch-size",))]
console = Console()


def main(argv: list[str] | None = None) -> int:
    """Runs one command; a user's mistake is one line on stderr and exit code 2."""
    keep_freed_memory()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help"):
            overview()
        elif words[0] == "--version":
            print(__version__)
        elif words[0] in COMMANDS:
            COMMANDS[words[0]](words[1:])
        else:
            raise UserError(f"no command {words[0]!r}: choose one of {', '.join(COMMANDS)} (`manyview --help`)")
    except UserError as error:
        print(f"manyview{distributed.whose()}: {error}", file=sys.stderr)
        return 2
    except Stopped as stop:
        console.print(str(stop), soft_wrap=True)
        return 128 + stop.number
    except KeyboardInterrupt:
        print("manyview: interrupted", file=sys.stderr)
        return 130
    return 0


def overview() -> None:
    console.print("[bold]manyview[/]: image representations from many views and many positives, without labels\n")
    grid = Table(show_header=False, box=None, padding=(0, 2))
    for name, command in COMMANDS.items():
        grid.add_row(f"manyview {name}", (command.__doc__ or "").splitlines()[0])
    console.print(grid)
    console.print(
        "\nEach command explains itself with --help; start with `manyview pretrain jcl --data scenes --out runs/jcl`."
    )


def pretrain_command(words: list[str]) -> None:
    """Learn an encoder from images: `pretrain METHOD --data … --out …`."""
    if not words or words[0] in ("-h", "--help"):
        grid = Table("method", "paper", title="manyview pretrain METHOD --data DATA --out DIR", title_justify="left")
        for name, description in described().items():
            grid.add_row(name, description)
        console.print(grid)
        console.print("`manyview pretrain METHOD --help` explains its flags.")
        return
    method = find(words[0])
    with ranks():
        config, source = parse_run(method, words[1:])
        console.print(f"report: {pretrain(method, config, source, console) / 'report.html'}", soft_wrap=True)


@contextmanager
def ranks() -> Iterator[None]:
    """Together with the other processes of a `torchrun`, of which one speaks for all."""
    with distributed.connected():
        console.quiet = distributed.rank() > 0
        yield


@dataclass(frozen=True)
class ResumeArgs:
    """Go on with an interrupted run, exactly where its last checkpoint left it."""

    run: Run
    """Run directory."""
    data: str | None = None
    """Where the same data lies now, if it has moved."""
    workers: int | None = None
    """Processes that read and decode."""
    device: str | None = None
    """cpu, cuda, …"""


def resume_command(words: list[str]) -> None:
    """Go on with an interrupted run: `resume RUN`."""
    args = tyro.cli(ResumeArgs, prog="manyview resume", args=words)
    with ranks():
        method, config = saved_config(args.run)
        data, workers, device = args.data, args.workers, args.device
        config = replace(
            config,
            data=replace(
                config.data,
                data=config.data.data if data is None else data,
                workers=config.data.workers if workers is None else workers,
            ),
            run=replace(config.run, device=config.run.device if device is None else device),
        )
        source = open_training(method, config)
        console.print(f"report: {resume(args.run, method, config, source, console) / 'report.html'}", soft_wrap=True)


@dataclass(frozen=True)
class EvaluateArgs(Generic[P]):
    """What is evaluated, on what."""

    run: Run
    """Run directory or encoder file."""
    data: str
    """Labelled training samples: anything that `pretrain --data` takes."""
    protocol: P
    test_data: str | None = None
    """Labelled test samples; otherwise the set's own test split, or 20 % of --data held out by hash."""
    view: str | None = None
    """Only these views of an encoder with a network for each, such as L or L,depth."""
    random: bool = True
    """Measure the same network with random weights beside it."""
    images_per_pass: int = 256
    """Images that the encoder gets at once."""
    workers: int = 0
    """Processes that read and decode."""
    device: str = "auto"
    """cpu, cuda, …"""


@dataclass(frozen=True)
class CachedArgs(EvaluateArgs[P]):
    """What is evaluated, on what, where one pass over the images is enough."""

    layer: str | None = None
    """Layers of the backbone instead of its features, such as conv1,conv3,fc7 or layer2,layer4."""


@dataclass(frozen=True)
class FittedArgs(CachedArgs[P]):
    """What is evaluated, on what, where nothing is trained in batches."""

    images_per_pass: ImagesPerPass = 256
    """Images that the encoder gets at once."""


def evaluate_command(words: list[str]) -> None:
    """Judge a frozen encoder: `evaluate knn|linear|mlp|linear-sgd|linear-adam RUN --data …`."""
    if not words or words[0] in ("-h", "--help"):
        grid = Table("protocol", "", title="manyview evaluate PROTOCOL RUN --data DATA", title_justify="left")
        for name, protocol in PROTOCOLS.items():
            grid.add_row(name, " ".join((protocol.__doc__ or "").split()))
        console.print(grid)
        return
    if words[0] not in PROTOCOLS:
        raise UserError(f"no protocol {words[0]!r}: choose one of {', '.join(PROTOCOLS)}")
    protocol = PROTOCOLS[words[0]]
    # Layers are those of cached features; where a classifier is trained in steps, --batch-size is that of the steps.
    kind: Any = EvaluateArgs if issubclass(protocol, LinearSgd) else CachedArgs if protocol is Mlp else FittedArgs
    args: EvaluateArgs[Protocol] = tyro.cli(
        kind[protocol],
        prog=f"manyview evaluate {words[0]}",
        description=protocol.title,
        args=words[1:],
        config=(tyro.conf.OmitArgPrefixes,),
    )
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


def names(text: str | None) -> list[str]:
    """Each once, in the order given."""
    return [] if text is None else list(dict.fromkeys(name.strip() for name in text.split(",")))


@dataclass(frozen=True)
class EmbedArgs:
    """Write the features of images: ids, embeddings, and labels where they are known."""

    run: Run
    """Run directory or encoder file."""
    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The .npz file to write."""
    split: Literal["train", "test"] = "train"
    """Part of a set that has two."""
    view: str | None = None
    """Only these views of an encoder with a network for each, such as L or L,depth."""
    images_per_pass: ImagesPerPass = 256
    """Images that the encoder gets at once."""
    workers: int = 0
    """Processes that read and decode."""
    device: str = "auto"
    """cpu, cuda, …"""


def embed_command(words: list[str]) -> None:
    """Write features of images to a file: `embed RUN --data … --out features.npz`."""
    args = tyro.cli(EmbedArgs, prog="manyview embed", args=words)
    encoder = load(args.run)
    if args.view is not None:
        encoder = encoder.only(names(args.view))
    source = open_source(args.data, split=args.split)
    features = embed(
        encoder,
        source,
        args.out,
        batch_size=args.images_per_pass,
        workers=args.workers,
        device=pick_device(args.device),
        progress=console.is_terminal,
    )
    lost = len(features.unreadable) + len(left_out_before(source))
    console.print(
        f"{args.out}: {len(features):,} embeddings of {source.name}, unreadable images: {lost:,}", soft_wrap=True
    )


@dataclass(frozen=True)
class ExportArgs:
    """Write the encoder for use elsewhere."""

    run: Run
    """Run directory or encoder file."""
    out: Path
    """The .safetensors file to write."""
    format: Literal["torchvision", "timm", "safetensors"] = "safetensors"
    """Names of the weights: torchvision's, timm's, or manyview's own file, which also knows size and normalisation."""


def export_command(words: list[str]) -> None:
    """Write the encoder for use elsewhere: `export RUN --format torchvision --out resnet50.safetensors`."""
    args = tyro.cli(ExportArgs, prog="manyview export", args=words)
    export(args.run, args.out, args.format)
    console.print(f"{args.out}: {args.format}", soft_wrap=True)


@dataclass(frozen=True)
class ReportArgs:
    """Write the report of a run again, with its newest evaluations."""

    run: Run
    """Run directory."""
    data: str | None = None
    """The data, if it has moved."""
    against: Path | None = None
    """Another run directory or encoder file. Its nearest neighbours are shown beside those of the run."""


def report_command(words: list[str]) -> None:
    """Write the report of a run, report.html: `report RUN [--against OTHER]`."""
    args = tyro.cli(ReportArgs, prog="manyview report", args=words)
    method, config = saved_config(args.run)
    source = open_training(method, replace(config, data=replace(config.data, data=args.data or config.data.data)))
    page = report(args.run, source, build_augment(method, config), console, against=args.against)
    console.print(f"report: {page}", soft_wrap=True)


@dataclass(frozen=True)
class DiagnoseArgs:
    """Find problems of a run and say what to do about them."""

    run: Run
    """Run directory. The run may still be training."""


COLOURS = {"problem": "red", "warning": "yellow", "good": "green", "unknown": "dim"}


def diagnose_command(words: list[str]) -> None:
    """Find problems of a run: `diagnose RUN`."""
    args = tyro.cli(DiagnoseArgs, prog="manyview diagnose", args=words)
    found = findings(args.run)
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for finding in found:
        grid.add_row(Text(finding.level, COLOURS[finding.level]), Text(f"{finding.about}: {finding.text}"))
        if finding.advice:
            grid.add_row("", Text(f"→ {finding.advice}"))
    console.print(grid if found else "There is nothing to judge yet.")


@dataclass(frozen=True)
class ViewsArgs:
    """Draw the views that a run would learn from in its first epoch: `views --data DATA`.

    What a run sees is told as to `pretrain`, whose flags are all taken (`manyview pretrain METHOD --help`): --data,
    --preset, --config, --augment, --min-crop, --image-size, --seed, and the method's own, such as --views or --keys.
    Views that go to networks of their own, as those of cmc, are shown too, in false colours.
    """

    method: str = "jcl"
    """Whose views."""
    out: Path = Path("views.png")
    """The picture to write."""
    samples: int = 6
    """How many samples."""


def views_command(words: list[str]) -> None:
    """Draw the views that a method learns from: `views --data … --method jcl`, with the flags of `pretrain`."""
    args, flags = tyro.cli(ViewsArgs, prog="manyview views", args=words, return_unknown_args=True)
    if args.samples < 1:
        raise UserError(f"--samples {args.samples} must be greater than 0")
    method = find(args.method)
    config, source = parse_run(method, [*flags, "--out", str(args.out)], prog=f"manyview views --method {method.name}")
    check_values(config)
    augment = build_augment(method, config)
    shown = dict(islice(readable(source, counter.permutation(len(source), config.run.seed)), args.samples))
    images, names = list(shown.values()), [source.id(number) for number in shown]
    split = method.encoder_config(config.method, config.encoder).split
    try:
        gallery(images, augment, args.out, index=list(shown), names=names, split=split)
    except OSError as error:
        raise UserError(f"--out {args.out} cannot be written ({error.strerror}): choose another place") from error
    view, area = config.views, augment.recipe.scale[0]
    what = f"views of {view.image_size} px, recipe {view.augment}, crops from {area:.0%} of the area"
    console.print(f"{args.out}: {what} (--preset {config.run.preset})", soft_wrap=True)


@dataclass(frozen=True)
class PackArgs:
    """Turn any source into one memory-mapped file of equal-sized uint8 images."""

    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The .safetensors file to write; it can be given as --data."""
    image_size: int | None = None
    """Side to which images of differing sizes are resized and cropped."""
    split: Literal["train", "test"] = "train"
    """Part of a set that has two."""
    unlabelled: bool = False
    """Do not read the first directory level as labels."""


def pack_command(words: list[str]) -> None:
    """Turn images into one memory-mapped file: `pack --data … --out images.safetensors`."""
    args = tyro.cli(PackArgs, prog="manyview pack", args=words)
    source = open_source(args.data, split=args.split, labelled=not args.unlabelled)
    packed = pack(source, args.out, image_size=args.image_size)
    console.print(f"{args.out}: {len(packed)} images of {packed.size}", soft_wrap=True)


@dataclass(frozen=True)
class ReproduceArgs:
    """Run a table or figure of the papers and set our numbers beside theirs."""

    recipe: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")] = None
    """Which one, as --list names it."""
    list: bool = False
    """Show the recipes with their cost, and do nothing."""
    scale: Literal["laptop", "paper"] = "laptop"
    """`laptop`: small runs with `tiny`, minutes each; `paper`: the paper's own set-up, for a machine with GPUs."""
    data: str | None = None
    """Labelled images: anything that `pretrain --data` takes, or a directory of train.tar and test.tar. The laptop's
    budgets are made for CIFAR-10; without this flag it takes `scenes`."""
    seeds: str = "0"
    """Seeds with commas between, as 0,1,2: three or more give intervals."""
    out: Path = Path("runs/reproduce")
    """Where runs, figures and pages go; recipes that share it share their runs."""
    results: Path | None = None
    """Directory of CSV files to which finished runs add their rows, and whose rows count as done, also those of other
    recipes: OUT/results if not given."""
    steps: int | None = None
    """Optimizer steps of every run instead of the recipe's budget."""
    quick: bool = False
    """Try the machinery: 4 steps of small batches, kept apart under OUT/quick; the figures mean nothing."""
    threads: int = 2
    """Threads of this process. Several processes may share a recipe: give each the same command."""
    workers: int = 0
    """Processes that read and decode."""
    device: str = "auto"
    """cpu, cuda, …"""
    write_results: Path | None = None
    """Write what --results holds (`results` if not given) into this Markdown page, between its markers, and do nothing
    else."""


def reproduce_command(words: list[str]) -> None:
    """Run a table or figure of the papers: `reproduce RECIPE --data …`; `reproduce --list` names them."""
    from manyview import reproduce  # only now: it needs a POSIX system and takes long to import

    args = tyro.cli(ReproduceArgs, prog="manyview reproduce", args=words)
    out = args.out / "quick" if args.quick else args.out
    results = args.results or out / "results"
    if args.write_results is not None:
        reproduce.write_results(args.write_results, args.results or Path("results"))
        console.print(f"written: {args.write_results}", soft_wrap=True)
        return
    if args.list or args.recipe is None:
        reproduce.list_recipes(console)
        return
    if args.quick and args.results is not None:
        raise UserError("--quick makes figures that mean nothing: leave out --results")
    if args.steps is not None and args.steps < 1:
        raise UserError(f"--steps {args.steps} must be greater than 0")
    if args.threads < 1:
        raise UserError(f"--threads {args.threads} must be greater than 0")
    recipe = reproduce.find(args.recipe)
    if args.scale == "paper" and args.data is None and recipe.takes_images:
        raise UserError(f"--scale paper needs --data with the paper's images ({recipe.paper_setup})")
    torch.set_num_threads(args.threads)
    setting = reproduce.Setting(
        args.scale,
        args.data or "scenes",
        seed_numbers(args.seeds),
        steps=args.steps,
        quick=args.quick,
        device=args.device,
        workers=args.workers,
        threads=args.threads,
    )
    reproduce.reproduce(recipe, setting, out, results, console)


def seed_numbers(text: str) -> tuple[int, ...]:
    """Each once, in the order given."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UserError(f"--seeds {text} is not a list of whole numbers: use 0,1,2")
    return tuple(dict.fromkeys(map(int, words)))


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "pretrain": pretrain_command,
    "resume": resume_command,
    "evaluate": evaluate_command,
    "embed": embed_command,
    "export": export_command,
    "report": report_command,
    "diagnose": diagnose_command,
    "views": views_command,
    "pack": pack_command,
    "reproduce": reproduce_command,
}
