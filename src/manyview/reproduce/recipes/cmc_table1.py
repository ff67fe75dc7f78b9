"""CMC, Table 1: which colour space is split, and what is gained over whole images."""

from manyview.reproduce.cmc_grid import REMARK, BesideRandom, BesideRandomGrid, cmc_run
from manyview.reproduce.job import Job
from manyview.reproduce.recipe import Found
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["ColourSpaces"]

VARIANTS = {
    "{L, ab}": ("lab",),
    "{Y, DbDr}": ("ydbdr",),
    "{Y, DbDr} + RA": ("ydbdr", "--augment", "cmc+ra"),
    "RGB": ("RGB",),
}
PAPER_FIGURES = {"{L, ab}": 64.0, "{Y, DbDr}": 64.8, "{Y, DbDr} + RA": 66.2}


class ColourSpaces(BesideRandomGrid):
    name = "cmc-table1"
    where = "CMC, Table 1"
    title = "Colour spaces as two views, against the whole image as one"
    claim = (
        "{Y, DbDr} is a little ahead of {L, ab}, RandAugment adds more than a point, and both are far ahead of "
        "instance discrimination on RGB (54.0 with ResNet-50, by Wu et al.)."
    )
    expectation = "Splits ahead of RGB; the two colour spaces within a point of each other."
    remarks = (
        f"{REMARK} RGB is instance discrimination with the same bank: one network and half the features of two views, "
        "so that each row has random weights beside it, and the gains over those are compared too (which was "
        "decided after seed 0)."
    )
    paper_setup = "ImageNet, ResNet-50 for each view, 200 epochs"
    variables = ("views", "encoder")
    paper = PAPER_FIGURES
    comparisons = (
        Comparison("{L, ab}", "RGB"),
        Comparison("{Y, DbDr}", "RGB"),
        Comparison("{Y, DbDr}", "{L, ab}"),
        Comparison("{Y, DbDr} + RA", "{Y, DbDr}"),
        Comparison("{L, ab}", "{L, ab}, random"),
        Comparison("RGB", "RGB, random"),
        Comparison("gain of {L, ab}", "gain of RGB"),
        Comparison("gain of {Y, DbDr}", "gain of RGB"),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        looks = (BesideRandom(),)
        return [cmc_run(setting, {"views": name}, seed, *words, looks=looks) for name, words in VARIANTS.items()]

    def values(self, found: Found) -> dict[str, dict[int, float]]:
        """Beside the accuracies, what each row gains over random weights: a second network has features of its own."""
        values = super().values(found)
        for name in VARIANTS:
            trained, random = values.get(name, {}), values.get(f"{name}, random", {})
            values[f"gain of {name}"] = {seed: trained[seed] - random[seed] for seed in trained.keys() & random.keys()}
        return values
