"""`manyview reproduce`: tables and figures of the papers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from manyview.arguments import Positional
from manyview.bounds import NotNegative, Positive
from manyview.cli.shared import console, names, parsed
from manyview.errors import UserError, naming


@dataclass(frozen=True)
class Reproduce:
    """Run a table or figure of a paper and compare our numbers with the paper's."""

    recipe: Annotated[str | None, Positional] = None
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
        from manyview.data.hub import pinned

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
        with naming("--data"):
            data = pinned(self.data or "scenes")
        setting = reproduce.Setting(
            self.scale,
            data,
            seed_numbers(self.seeds),
            steps=self.steps,
            quick=self.quick,
            device=self.device,
            workers=self.workers,
            threads=self.threads,
        )
        reproduce.reproduce(recipe, setting, out, results, console)


def seed_numbers(text: str) -> tuple[int, ...]:
    words = names(text)
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UserError(f"--seeds {text} is not a list of whole numbers: use 0,1,2")
    return tuple(dict.fromkeys(map(int, words)))


def run(words: list[str]) -> None:
    parsed(Reproduce, words)()
