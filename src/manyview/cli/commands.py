"""The commands whose flags are fixed. Each is a dataclass of its flags, and imports what it needs when it runs."""

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from manyview import bounds
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, names, ranks
from manyview.errors import UserError, naming

if TYPE_CHECKING:
    from manyview.data import Source


COLOURS = {"problem": "red", "warning": "yellow", "good": "green", "unknown": "dim"}


def run(name: str, words: list[str]) -> None:
    if name == "views":  # its other flags are those of `pretrain`
        views, flags = tyro.cli(Views, prog="manyview views", args=words, return_unknown_args=True)
        bounds.check(views)
        views.draw(flags)
    else:
        command = tyro.cli(KINDS[name], prog=f"manyview {name}", args=words)
        bounds.check(command)
        command()


@dataclass(frozen=True)
class Resume:
    """Continue an interrupted run exactly from its last checkpoint."""

    run: tyro.conf.Positional[Path]
    """Run directory."""
    data: str | None = None
    """The data, if it has moved."""
    workers: Annotated[int | None, NotNegative] = None
    """Processes that read and decode."""
    device: str | None = None
    """cpu, cuda, …"""

    def __call__(self) -> None:
        from manyview.run.flags import open_training
        from manyview.run.pretrain import resume
        from manyview.run.saved import saved_config

        with ranks():
            method, config = saved_config(self.run)
            moved = {name: value for name in ("data", "workers") if (value := getattr(self, name)) is not None}
            device = config.run.device if self.device is None else self.device
            config = replace(config, data=replace(config.data, **moved), run=replace(config.run, device=device))
            source = open_training(method, config)
            console.print(
                f"report: {resume(self.run, method, config, source, console) / 'report.html'}", soft_wrap=True
            )


@dataclass(frozen=True)
class Embed:
    """Write the features of images to a file: ids, embeddings, and labels if there are any."""

    run: tyro.conf.Positional[Path]
    """Run directory or encoder file."""
    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The .npz file to write."""
    split: Literal["train", "test"] = "train"
    """Which split, if the data has two."""
    view: str | None = None
    """Use only these views of an encoder with a network per view, such as L or L,depth. Default: all."""
    depth_scale: Annotated[float | None, Positive] = None
    """Metres per unit of depth files. Default: that of the run; of an encoder file 0.001, for millimetres."""
    intrinsics: str | None = None
    """Camera intrinsics fx,fy,cx,cy, for normals computed from depth. Default: those of the run; of an encoder file
    Kinect's."""
    images_per_pass: Annotated[int, Positive, tyro.conf.arg(aliases=("--batch-size",))] = 256
    """Images per forward pass of the encoder."""
    workers: Annotated[int, NotNegative] = 0
    """Processes that read and decode."""
    device: str = "auto"
    """cpu, cuda, …"""

    def __call__(self) -> None:
        from manyview.encoders import load
        from manyview.evaluate.features import embed, left_out_before
        from manyview.evaluate.split import camera_of
        from manyview.run.device import pick_device

        encoder = load(self.run)
        if self.view is not None:
            encoder = encoder.only(names(self.view))
        camera = camera_of(self.run, self.depth_scale, self.intrinsics)
        source = opened(self.data, self.split, camera=camera)
        features = embed(
            encoder,
            source,
            self.out,
            batch_size=self.images_per_pass,
            workers=self.workers,
            device=pick_device(self.device),
            progress=console.is_terminal,
        )
        lost = len(features.unreadable) + len(left_out_before(source))
        console.print(
            f"{self.out}: {len(features):,} embeddings of {source.name}, unreadable images: {lost:,}", soft_wrap=True
        )


def opened(data: str, split: str, **how: Any) -> "Source":
    from manyview.data import open_source
    from manyview.data.source import NoTestSplit

    try:
        with naming("--data"):
            return open_source(data, split=split, **how)
    except NoTestSplit as error:
        raise UserError(f"--split {split}: '{data}' has no test split: use --split train") from error


@dataclass(frozen=True)
class Export:
    """Write the encoder for other programs."""

    run: tyro.conf.Positional[Path]
    """Run directory or encoder file."""
    out: Path
    """The .safetensors file to write."""
    format: Literal["torchvision", "timm", "safetensors"] = "safetensors"
    """`torchvision`, `timm`: state dict with their names. `safetensors`: manyview's own file, with image size and
    normalisation."""

    def __call__(self) -> None:
        from manyview.encoders import export

        export(self.run, self.out, self.format)
        console.print(f"{self.out}: {self.format}", soft_wrap=True)


@dataclass(frozen=True)
class Report:
    """Write the report of a run (report.html) with its newest evaluations."""

    run: tyro.conf.Positional[Path]
    """Run directory."""
    data: str | None = None
    """The data, if it has moved."""
    against: Path | None = None
    """Another run directory or encoder file. Its nearest neighbours are shown beside those of the run."""

    def __call__(self) -> None:
        from manyview.run.build import build_augment
        from manyview.run.flags import open_training
        from manyview.run.pretrain import report
        from manyview.run.saved import saved_config

        method, config = saved_config(self.run)
        source = open_training(method, replace(config, data=replace(config.data, data=self.data or config.data.data)))
        page = report(self.run, source, build_augment(method, config), console, against=self.against)
        console.print(f"report: {page}", soft_wrap=True)


@dataclass(frozen=True)
class Diagnose:
    """Find problems of a run and say what to do about them."""

    run: tyro.conf.Positional[Path]
    """Run directory. The run may still be training."""

    def __call__(self) -> None:
        from rich.table import Table
        from rich.text import Text

        from manyview.diagnose.rules import findings

        found = findings(self.run)
        grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for finding in found:
            grid.add_row(Text(finding.level, COLOURS[finding.level]), Text(f"{finding.about}: {finding.text}"))
            if finding.advice:
                grid.add_row("", Text(f"→ {finding.advice}"))
        console.print(grid if found else "There is nothing to judge yet.")


@dataclass(frozen=True)
class Views:
    """Draw the views of the first epoch of a run: `views --data DATA`.

    All flags of `pretrain` are taken (`manyview pretrain METHOD --help`): --data, --preset, --config, --augment,
    --min-crop, --image-size, --seed, and those of the method, such as --views or --keys. Views with networks of their
    own, such as those of cmc, are shown in false colours.
    """

    method: str = "jcl"
    """The method."""
    out: Path = Path("views.png")
    """The picture to write."""
    samples: Annotated[int, Positive] = 6
    """How many samples."""

    def draw(self, flags: list[str]) -> None:
        from manyview import counter
        from manyview.data.source import readable
        from manyview.methods import find
        from manyview.run.build import build_augment
        from manyview.run.flags import parse_run
        from manyview.views import picture, png

        method = find(self.method)
        config, source = parse_run(
            method, [*flags, "--out", str(self.out)], prog=f"manyview views --method {method.name}"
        )
        augment = build_augment(method, config)
        order = counter.permutation(len(source), config.run.seed).tolist()
        shown = dict(islice(readable(source, order), self.samples))
        images, ids = list(shown.values()), [source.id(number) for number in shown]
        split = method.encoder_config(config.method, config.encoder).split
        drawn = png(picture(images, augment, index=list(shown), names=ids, split=split))
        try:
            self.out.write_bytes(drawn)
        except OSError as error:
            raise UserError(f"--out {self.out} cannot be written ({error.strerror}): choose another place") from error
        view, area = config.views, augment.policy.scale[0]
        what = f"views of {view.image_size} px, augmentation {view.augment}, crops from {area:.0%} of the area"
        console.print(f"{self.out}: {what} (--preset {config.run.preset}){missing_from(source)}", soft_wrap=True)


@dataclass(frozen=True)
class Pack:
    """Pack any data into one memory-mapped file of samples of one size, with all their fields."""

    data: str
    """Images: anything that `pretrain --data` takes."""
    out: Path
    """The .safetensors file to write. It can be given as --data."""
    image_size: Annotated[int | None, Positive] = None
    """Side in pixels to which images are resized and cropped. Needed if their sizes differ."""
    split: Literal["train", "test"] = "train"
    """Which split, if the data has two."""
    unlabelled: bool = False
    """Do not read the first directory level as labels."""
    depth_scale: Annotated[float, Positive] = 0.001
    """Metres per unit of depth files: 0.001 for millimetres."""
    intrinsics: str | None = None
    """Camera intrinsics fx,fy,cx,cy in pixels, for normals computed from depth. Default: Kinect's."""

    def __call__(self) -> None:
        from manyview.data import Camera, pack

        source = opened(self.data, self.split, labelled=not self.unlabelled, camera=Camera.of(self))
        source = source.select(source.fields)
        packed = pack(source, self.out, image_size=self.image_size)
        fields = f" with {', '.join(packed.fields)}" if len(packed.fields) > 1 else ""
        console.print(
            f"{self.out}: {len(packed)} images of {packed.size}{fields}{missing_from(packed)}", soft_wrap=True
        )


@dataclass(frozen=True)
class Reproduce:
    """Run a table or figure of a paper and compare our numbers with the paper's."""

    recipe: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")] = None
    """Which one. --list names them."""
    list: bool = False
    """List the recipes with their cost and stop."""
    scale: Literal["laptop", "paper"] = "laptop"
    """`laptop`: small runs with the backbone `tiny`, minutes each. `paper`: the paper's own setup, for GPUs."""
    data: str | None = None
    """Labelled images: anything that `pretrain --data` takes, or a directory with train.tar and test.tar. The budgets
    of `laptop` are made for CIFAR-10. The default is `scenes`."""
    seeds: str = "0"
    """Seeds, separated by commas, such as 0,1,2. Three or more give intervals."""
    out: Path = Path("runs/reproduce")
    """Directory of runs, figures and pages. Recipes with the same directory share their runs."""
    results: Path | None = None
    """Directory of CSV files. Finished runs add their rows. A run whose row is there already is not repeated. The
    default is OUT/results."""
    steps: Annotated[int | None, Positive] = None
    """Optimizer steps of every run, instead of the recipe's budget."""
    quick: bool = False
    """Test the machinery: 4 steps with small batches, kept in OUT/quick. The numbers mean nothing."""
    threads: Annotated[int, Positive] = 2
    """Threads of this process. Several processes can work on one recipe: start the same command in each."""
    workers: Annotated[int, NotNegative] = 0
    """Processes that read and decode."""
    device: str = "auto"
    """cpu, cuda, …"""
    write_results: Path | None = None
    """Write the rows of --results (default: `results`) into this Markdown page, between its markers, and stop."""

    def __call__(self) -> None:
        import torch

        from manyview import reproduce

        out = self.out / "quick" if self.quick else self.out
        results = self.results or out / "results"
        if self.write_results is not None:
            reproduce.write_results(self.write_results, self.results or Path("results"))
            console.print(f"written: {self.write_results}", soft_wrap=True)
            return
        if self.list or self.recipe is None:
            reproduce.list_recipes(console)
            return
        if self.quick and self.results is not None:
            raise UserError("--quick makes figures that mean nothing: leave out --results")
        recipe = reproduce.find(self.recipe)
        if self.scale == "paper" and self.data is None and recipe.takes_images:
            raise UserError(f"--scale paper needs --data with the paper's images ({recipe.paper_setup})")
        torch.set_num_threads(self.threads)
        setting = reproduce.Setting(
            self.scale,
            self.data or "scenes",
            seed_numbers(self.seeds),
            steps=self.steps,
            quick=self.quick,
            device=self.device,
            workers=self.workers,
            threads=self.threads,
        )
        reproduce.reproduce(recipe, setting, out, results, console)


def missing_from(source: "Source") -> str:
    return f"; missing: {source.missing_in_words}" if source.missing else ""


def seed_numbers(text: str) -> tuple[int, ...]:
    words = names(text)
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UserError(f"--seeds {text} is not a list of whole numbers: use 0,1,2")
    return tuple(dict.fromkeys(map(int, words)))


KINDS: dict[str, Any] = {
    kind.__name__.lower(): kind for kind in (Resume, Embed, Export, Report, Diagnose, Pack, Reproduce)
}
