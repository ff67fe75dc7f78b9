"""CACR, Fig. 8: accuracy against the size of the batch."""

from collections.abc import Mapping

from manyview.reproduce.families import CACR_FAMILY, cacr_family, cacr_run
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["BatchSize"]

LAPTOP = (32, 64, 128, 256)


class BatchSize(Grid):
    name = "cacr-fig8"
    where = "CACR, Fig. 8"
    title = "Accuracy against the size of the batch, which is that of the negatives"
    claim = "CACR (K = 4) is ahead at every size; CACR (K = 1) needs more than 64 samples to pass CL."
    expectation = (
        "Runs of 96,000 views are so short that small batches, which make more steps, do best for all methods."
    )
    remarks = (
        "Every run encodes 96,000 views, in the more steps the smaller its batch is, with lr 0.12 per 256 samples. The "
        "paper trains each for 200 epochs. The figure's values are not printed there."
    )
    paper_setup = "CIFAR-10, AlexNet, 200 epochs, batches of 64 to 768"
    variables = ("method", "batch")
    x = ("batch", "batch size, M")
    evenly = True
    comparisons = tuple(
        Comparison(f"CACR (K = {k}), {batch}", f"{rival}, {batch}")
        for batch in LAPTOP
        for k, rival in ((4, "CMC (K = 4)"), (1, "CL"))
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        sizes = LAPTOP if setting.scale == "laptop" else (64, 128, 256, 512, 768)
        return [
            cacr_run(setting, {"method": method, "batch": str(batch)}, seed, CACR_FAMILY[method], batch=batch)
            for batch in sizes
            for method in cacr_family(setting)
        ]

    def label(self, row: Mapping[str, str]) -> str:
        return f"{row['method']}, {row['batch']}"

    def series(self, row: Mapping[str, str]) -> str:
        return row["method"]
