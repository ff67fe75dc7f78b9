"""`manyview reproduce`: run a table or figure of a paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyview import bounds
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, names
from manyview.errors import UserError

__all__ = ["run"]


@dataclass(frozen=True)
class Args:
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


def run(words: list[str]) -> None:
    args = tyro.cli(Args, prog="manyview reproduce", args=words)
    bounds.check(args)
    import torch

    from manyview import reproduce

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
    words = names(text)
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UserError(f"--seeds {text} is not a list of whole numbers: use 0,1,2")
    return tuple(dict.fromkeys(map(int, words)))
